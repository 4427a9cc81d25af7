"""A gateway in front of fake nodes, in the test's own event loop, checked for leaks at the end."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headway.clock import Clock
from headway.config import Config, GatewayConfig, KeyConfig, NodeConfig
from headway.core.tier import Tiers
from headway.gateway.access_log import Record
from headway.gateway.app import Gateway, build_gateway
from headway.gateway.fake_node import FakeNode
from headway.gateway.serve import GatewayServer
from headway.wire.listen import open_socket

T = TypeVar("T")

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODEL = "fake-model"
HANG_S = 30.0
IDLE_S = 2.0
"""How soon everything has to be back to baseline after the last response."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the decoded body."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object; fails when the shape is not OpenAI's."""
        error: dict[str, Any] = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str)
        assert isinstance(error["code"], str)
        return error

    @property
    def events(self) -> list[str]:
        """The data of each event of a stream."""
        frames = self.body.decode().split("\n\n")
        return [frame.removeprefix("data: ") for frame in frames if frame.startswith("data: ")]

    @property
    def chunks(self) -> list[Any]:
        """The decoded events, without the end mark."""
        return [json.loads(event) for event in self.events if event != "[DONE]"]

    @property
    def text(self) -> str:
        """What the first choice said."""
        if "text/event-stream" not in self.headers["content-type"]:
            choice = self.json()["choices"][0]
            return str(choice["message"]["content"] if "message" in choice else choice["text"])
        parts = [c["choices"][0] for c in self.chunks if c.get("choices")]
        return "".join(part["delta"].get("content") or "" for part in parts)


class Connection:
    """One request whose response is read bit by bit, or not at all."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_until(self, text: bytes) -> bytes:
        """Return everything up to and including `text`."""
        return await self.reader.readuntil(text)

    def leave(self, *, reset: bool = False) -> None:
        """Close the connection, in order (FIN) or with a reset."""
        if reset:
            self.writer.transport.abort()
        self.writer.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A gateway that serves."""

    gateway: Gateway
    server: GatewayServer
    port: int
    connections: list[Connection] = field(default_factory=list)
    """All that were opened: closed at the latest with the gateway, also when a test fails."""

    @property
    def url(self) -> str:
        """What the official client takes as base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def connect(
        self,
        path: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        method: str = "POST",
    ) -> Connection:
        """Send a request and return its connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        fields = [("host", "test"), ("connection", "close"), *headers]
        if body is not None:
            fields += [("content-type", "application/json"), ("content-length", str(len(body)))]
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        self.connections.append(Connection(reader, writer))
        return self.connections[-1]

    async def send(
        self,
        path: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        method: str = "POST",
    ) -> Answer:
        """Send a request and return the whole response."""
        connection = await self.connect(path, body, headers, method)
        try:
            return parse(await connection.reader.read())
        finally:
            connection.leave()

    async def get(self, path: str, headers: Sequence[tuple[str, str]] = ()) -> Answer:
        """GET a page."""
        return await self.send(path, None, headers, "GET")

    async def chat(self, *headers: tuple[str, str], **fields: Any) -> Answer:
        """Ask for a chat completion."""
        return await self.send(CHAT, chat_body(**fields), headers)

    async def open_chat(self, *headers: tuple[str, str], **fields: Any) -> Connection:
        """Ask for a chat completion, and leave the response to the caller."""
        return await self.connect(CHAT, chat_body(**fields), headers)

    def record(self, client_id: str, tenant: str = "default") -> Record:
        """Return what is remembered of the request with that `x-request-id`."""
        record = self.gateway.ring.find(tenant, client_id)
        assert record is not None, f"{client_id} has not ended"
        return record

    def queued(self) -> int:
        """Return how many requests wait in the gateway."""
        return len(self.gateway.controller.dispatcher)

    def queued_of(self, rank: int) -> int:
        """Return how many requests of a tier wait in the gateway."""
        return self.gateway.controller.dispatcher.queue_depth(rank)

    async def probe(self) -> None:
        """Probe every node once."""
        for node in self.gateway.pool.nodes:
            await self.gateway.prober.probe(node)

    async def metric(self, name: str) -> float:
        """Return the value of one series; 0 when there is none."""
        page = (await self.get("/metrics")).body.decode()
        return next(
            (float(x.rpartition(" ")[2]) for x in page.splitlines() if x.startswith(name)), 0
        )


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario in a loop of its own, and fail when it hangs."""
    return asyncio.run(asyncio.wait_for(scenario, HANG_S))


async def eventually(happened: Callable[[], bool]) -> None:
    """Let the loop turn until `happened`; it has as long as invariant I0 allows."""
    async with asyncio.timeout(IDLE_S):
        while not happened():  # noqa: ASYNC110 - clients and sockets have no event to wait for
            await asyncio.sleep(0)


def chat_body(**fields: Any) -> bytes:
    """Return the body of a short chat completion, with `fields` changed."""
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": MODEL, "messages": messages, **fields}).encode()


def parse(raw: bytes) -> Answer:
    """Read a whole response; a chunked body that has no end is cut where it stops."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _dechunk(body)
    return Answer(int(first.split(" ")[1]), headers, body)


def _dechunk(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size or b"0", 16)
        parts.append(body[:length])
        body = body[length + 2 :]
    return b"".join(parts)


@asynccontextmanager
async def gateway_before(
    *nodes: FakeNode,
    keys: Sequence[KeyConfig] = (),
    tiers: Tiers | None = None,
    clock: Clock | None = None,
    max_inflight: int | None = None,
    probing: bool = False,
    first_probe: bool = True,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Run a gateway before `nodes`; assert invariant I0 at the end.

    Nodes are probed once, unless not `first_probe`, and by themselves only when `probing`.
    """
    for node in nodes:
        await node.start()
    config = Config(
        gateway=GatewayConfig(**settings),
        tiers=Tiers() if tiers is None else tiers,
        keys=tuple(keys),
        nodes=tuple(
            NodeConfig(name=f"n{index}", url=node.url, max_inflight=max_inflight)
            for index, node in enumerate(nodes)
        ),
    )
    gateway = build_gateway(config, clock=clock)
    server, task, port = await _start(gateway)
    running = Running(gateway, server, port)
    try:
        if not probing:
            await gateway.prober.stop()
        if first_probe:
            await running.probe()
        yield running
        await assert_idle(running, nodes)
    finally:
        for connection in running.connections:
            connection.leave()
        server.should_exit = True
        await task
        await gateway.stop()
        for node in nodes:
            await node.stop()


async def _start(gateway: Gateway) -> tuple[GatewayServer, "asyncio.Task[None]", int]:
    started = asyncio.Event()

    async def start() -> None:
        await gateway.start()
        started.set()

    gateway.app.on_start = start
    listener = open_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = GatewayServer(gateway)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    task.add_done_callback(lambda _: listener.close())
    await started.wait()
    return server, task, port


async def assert_idle(running: Running, nodes: Sequence[FakeNode]) -> None:
    """Invariant I0: soon after the last response everything is back to where it was."""
    async with asyncio.timeout(IDLE_S):
        await running.gateway.exchanges.wait_idle()
        for node in nodes:
            await node.wait_idle()
    running.gateway.check_idle()
    page = (await running.get("/metrics")).body.decode()
    for line in page.splitlines():
        if line.startswith(("headway_inflight{", "headway_queue_")) and "wait" not in line:
            assert float(line.rpartition(" ")[2]) == 0, line
