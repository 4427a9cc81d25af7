"""An engine without a model behind its real HTTP server on the loopback, checked for leaks."""

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headway.engine.async_engine import AsyncEngine
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.generation import ServerOptions
from headway.engine.options import EngineOptions
from headway.engine.runner import SequenceSlice, StepResult
from headway.engine.server import build_app
from tests.loopback import serve

MODEL = "fake"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
IDLE_S = 2.0
"""How soon everything has to be back to baseline after the last response."""
LONGEST_S = 20.0

_SO_LINGER_NOW = struct.pack("ii", 1, 0)


class GatedRunner(FakeRunner):
    """A `FakeRunner` that computes only the steps it is given, once the gate is closed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._gate = threading.Condition()
        self._steps: int | None = None
        self._waits = False

    @property
    def stands(self) -> bool:
        """Whether a step stands before the gate, with none allowed."""
        with self._gate:
            return self._waits and self._steps == 0

    def close_gate(self) -> None:
        """Compute no further step."""
        with self._gate:
            self._steps = 0

    def open_gate(self) -> None:
        """Compute without limit."""
        with self._gate:
            self._steps = None
            self._gate.notify_all()

    def give_step(self) -> None:
        """Allow one more step."""
        with self._gate:
            assert self._steps is not None
            self._steps += 1
            self._gate.notify_all()

    def wait_for_step(self) -> None:
        """Return when a step stands before the gate."""
        with self._gate:
            assert self._gate.wait_for(lambda: self._waits and self._steps == 0, LONGEST_S)

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """Wait for permission, then compute."""
        with self._gate:
            self._waits = True
            self._gate.notify_all()
            assert self._gate.wait_for(lambda: self._steps != 0, LONGEST_S)
            self._waits = False
            if self._steps is not None:
                self._steps -= 1
        return super().execute(slices, copies)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, which must be strict JSON."""
        return json.loads(self.body, parse_constant=_no_constant)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, in OpenAI's shape."""
        error: dict[str, Any] = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["code"], str)
        return error

    @property
    def events(self) -> list[Any]:
        """The decoded events of a stream, `[DONE]` as it is."""
        frames = [frame for frame in self.body.decode().split("\n\n") if frame.startswith("data: ")]
        texts = [frame.removeprefix("data: ") for frame in frames]
        return [
            text if text == "[DONE]" else json.loads(text, parse_constant=_no_constant)
            for text in texts
        ]


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


class Stage:
    """One engine and its server."""

    def __init__(self, port: int, engine: AsyncEngine, runner: GatedRunner) -> None:
        self.port = port
        self.engine = engine
        self.runner = runner
        self.url = f"http://127.0.0.1:{port}"
        self._connections: list[socket.socket] = []

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """Return the response to one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_S)
        try:
            connection.putrequest(method, path)
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, path: str, fields: Mapping[str, Any], **headers: str) -> Answer:
        """Post JSON; `model` is added. Underscores in header names stand for hyphens."""
        sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.ask("POST", path, json.dumps({"model": MODEL, **fields}).encode(), sent)

    def get(self, path: str) -> Answer:
        """Get a page."""
        return self.ask("GET", path)

    def chat(self, **fields: Any) -> Answer:
        """Post a chat request with one short message."""
        return self.post(CHAT, {"messages": [{"role": "user", "content": "hi"}], **fields})

    def complete(self, **fields: Any) -> Answer:
        """Post a completion request with a short prompt."""
        return self.post(COMPLETIONS, {"prompt": "hi", **fields})

    def connect(self, fields: Mapping[str, Any], *headers: str) -> socket.socket:
        """Send a completion request over a socket and return it without reading.

        It is closed with the stage at the latest, so that a test that fails leaves nothing behind.
        """
        body = json.dumps({"model": MODEL, "prompt": "hi", **fields}).encode()
        head = [f"POST {COMPLETIONS} HTTP/1.1", "host: x", f"content-length: {len(body)}", *headers]
        connection = socket.create_connection(("127.0.0.1", self.port), LONGEST_S)
        self._connections.append(connection)
        connection.sendall("\r\n".join([*head, "", ""]).encode() + body)
        return connection

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric's only series with these labels."""
        found = []
        for line in self.get("/metrics").body.decode().splitlines():
            shown = all(f'{key}="{value}"' in line for key, value in labels.items())
            if shown and line.startswith((name + "{", name + " ")):
                found.append(float(line.rpartition(" ")[2]))
        assert len(found) == 1, f"{name}{labels} has {len(found)} series"
        return found[0]

    @property
    def idle(self) -> bool:
        """Whether no request is in the engine and no block is held."""
        stats = self.engine.stats()
        sequences = sum(stats.num_running) + sum(stats.num_waiting)
        return sequences == 0 and stats.num_held_blocks == 0

    def until(self, condition: Any, within_s: float = LONGEST_S) -> None:
        """Ask the server for its health until `condition()` holds; each answer is a loop's turn."""
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it never came true"
            self.get("/health")

    def close(self) -> None:
        """Close the connections that `connect` opened."""
        for connection in self._connections:
            connection.close()

    def check_idle(self) -> None:
        """Check invariant I0: everything is back to baseline, and a plain request is served."""
        self.until(lambda: self.idle, IDLE_S)
        self.engine.engine.check_integrity()
        stats = self.engine.stats()
        assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks
        assert self.chat(max_tokens=2).status == 200


def reset(connection: socket.socket) -> None:
    """Close a connection by RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SO_LINGER_NOW)
    connection.close()


@contextmanager
def stage(
    *,
    runner: GatedRunner | None = None,
    kind: type[AsyncEngine] = AsyncEngine,
    engine: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    send_buffer: int | None = None,
    stays_idle: bool = True,
) -> Iterator[Stage]:
    """Serve while the block runs; at its end invariant I0 must hold, unless told otherwise."""
    runner = GatedRunner(num_blocks=512) if runner is None else runner
    options = EngineOptions(calibrate=False, **({} if engine is None else engine))
    async_engine = kind(LLMEngine.from_parts(runner, ByteTokenizer(), options))
    settings = {} if server is None else server
    app = build_app(async_engine, ServerOptions(model_name=MODEL, **settings))
    with serve(app, drain_s=1.0, send_buffer=send_buffer) as loopback:
        one = Stage(loopback.port, async_engine, runner)
        try:
            yield one
            runner.open_gate()
            if stays_idle:
                one.check_idle()
        finally:
            runner.open_gate()
            one.close()
