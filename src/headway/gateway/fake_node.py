"""What would a node do? A deterministic one, whose every misbehaviour can be ordered.

Speaks OpenAI's HTTP API over a plain asyncio server, so that each byte, each cut and each way of
dying is under control. It generates the tokens it is given, records what it receives, and notices
when its client leaves. For tests, and by hand: `python -m headway.gateway.fake_node --port 8001`.
"""

import argparse
import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from headway.gateway.fake_answers import (
    CREATED,
    Behaviour,
    FakeCompletion,
    Received,
    ResponseWriter,
)

__all__ = ["Behaviour", "FakeNode", "Received"]

_LINE_END = b"\r\n"
_TOO_LONG = b'{"error": {"message": "the prompt is too long", "param": "prompt"}}'


@dataclass(kw_only=True)
class FakeNode:
    """The node. Start it with `start()`; `url` is where it listens."""

    models: tuple[str, ...] = ("fake-model",)
    concurrency: int | None = None
    """Completions served at once, the rest waits in order; None: all."""
    max_num_seqs: int | None = None
    """Reported as our own engine's gauge in /metrics; None: not reported."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    script: deque[Behaviour] = field(default_factory=deque)
    """Behaviours of the next completions, one each, before `behaviour` applies."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further series of /metrics, by name and labels."""
    refuse_over: int | None = None
    """Larger bodies are refused as too long, neither decoded nor recorded; None: none are."""
    health_status: int = 200
    metrics_gate: asyncio.Event | None = None
    """/metrics hangs until this event."""
    received: list[Received] = field(default_factory=list)
    """The completions, in the order of arrival."""
    running: int = 0
    peak: int = 0
    cancelled: int = 0
    """Completions whose client left before the end."""
    connections: int = 0

    def __post_init__(self) -> None:
        """Nothing listens yet."""
        self._server: asyncio.Server | None = None
        self._slots = asyncio.Semaphore(self.concurrency or 1_000_000)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def url(self) -> str:
        """Root of the HTTP server."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        """Listen on `port`; 0 takes any free one, or the one it had before."""
        self._server = await asyncio.start_server(self._connect, host, port or self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut every connection: from now on connections are refused."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def wait_for(self, happened: Callable[[], bool]) -> None:
        """Return once `happened` is true; it is asked whenever a completion comes or goes."""
        if not happened():
            seen = asyncio.get_running_loop().create_future()
            self._watchers.append((happened, seen))
            await seen

    async def wait_received(self, count: int) -> None:
        """Return once `count` completions have arrived in all."""
        await self.wait_for(lambda: len(self.received) >= count)

    async def wait_idle(self) -> None:
        """Return once no completion is being answered."""
        await self.wait_for(lambda: self.running == 0)

    def _notify(self) -> None:
        for watcher in list(self._watchers):
            happened, seen = watcher
            if happened():
                self._watchers.remove(watcher)
                if not seen.done():
                    seen.set_result(None)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = b""
        while True:
            request = await _read_request(reader, ahead)
            answering = asyncio.create_task(self._answer(request, ResponseWriter(writer)))
            leaving = asyncio.create_task(reader.read(1))
            try:
                await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not answering.done() or isinstance(answering.exception(), ConnectionResetError):
                    self.cancelled += request.method == "POST"
                    self._notify()
                    return
                await answering
                # The client sends its next request only after this answer, so a read that is
                # still waiting has taken nothing.
                ahead = leaving.result() if leaving.done() else b""
                if leaving.done() and not ahead:
                    return
            finally:
                answering.cancel()
                leaving.cancel()
                await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _answer(self, request: Received, out: "ResponseWriter") -> None:
        if request.path == "/metrics":
            if self.metrics_gate is not None:
                await self.metrics_gate.wait()
            await out.whole(200, self._metrics(), content_type="text/plain")
        elif request.path == "/health":
            await out.whole(self.health_status, b"")
        elif request.path == "/v1/models":
            await out.whole(200, _models_body(self.models))
        elif request.method == "GET":
            await out.whole(404, b"{}")
        else:
            await self._complete(request, out)

    def _metrics(self) -> bytes:
        lines = [f"vllm:num_requests_running {self.running}"]
        if self.max_num_seqs is not None:
            lines.append(
                f'headway:max_num_seqs{{model_name="{self.models[0]}"}} {self.max_num_seqs}.0'
            )
        lines.extend(f"{series} {value}" for series, value in self.metrics.items())
        return "\n".join([*lines, ""]).encode()

    async def _complete(self, request: Received, out: "ResponseWriter") -> None:
        if self.refuse_over is not None and len(request.body) > self.refuse_over:
            await out.whole(400, _TOO_LONG)
            return
        behaviour = self.script.popleft() if self.script else self.behaviour
        self.received.append(request)
        self._notify()
        async with self._slots:
            self.running += 1
            self.peak = max(self.peak, self.running)
            self._notify()
            try:
                await FakeCompletion(request, behaviour, out).run()
            finally:
                self.running -= 1
                self._notify()


async def _read_request(reader: asyncio.StreamReader, ahead: bytes) -> Received:
    head = (ahead + await reader.readuntil(_LINE_END * 2)).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ", 2)
    pairs = (line.split(":", 1) for line in lines)
    headers = tuple((name.lower(), value.strip()) for name, value in pairs)
    length = next((int(value) for name, value in headers if name == "content-length"), 0)
    return Received(method, path.partition("?")[0], headers, await reader.readexactly(length))


def _models_body(models: tuple[str, ...]) -> bytes:
    data = [{"id": m, "object": "model", "created": CREATED, "owned_by": "fake"} for m in models]
    return msgspec.json.encode({"object": "list", "data": data})


async def _run(arguments: argparse.Namespace) -> None:
    speed = arguments.tokens_per_s
    node = FakeNode(
        models=(arguments.model,),
        concurrency=arguments.concurrency,
        max_num_seqs=arguments.max_num_seqs,
        refuse_over=arguments.refuse_over,
        behaviour=Behaviour(
            tokens=tuple(f"tok{index} " for index in range(arguments.tokens)),
            tokens_per_s=speed,
            first_token_s=arguments.first_token_s,
        ),
    )
    await node.start(arguments.port, arguments.host)
    print(f"fake node on {node.url}", flush=True)  # noqa: T201 - it is a command
    await asyncio.Event().wait()


def main() -> None:
    """Run a fake node from the command line."""
    parser = argparse.ArgumentParser(description="A deterministic OpenAI-compatible node.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--model", default="fake-model")
    parser.add_argument("--tokens", type=int, default=16, help="tokens of each answer")
    parser.add_argument("--tokens-per-s", type=float, default=None, help="speed of one stream")
    parser.add_argument("--first-token-s", type=float, default=0.0)
    parser.add_argument("--concurrency", type=int, default=None)
    parser.add_argument("--max-num-seqs", type=int, default=None)
    parser.add_argument("--refuse-over", type=int, default=None, help="bytes of a body")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
