"""Does all this work behind a reverse proxy with its defaults, as users have it? (trial C5)"""

import asyncio
import zlib
from typing import Any

import pytest

from headway.core.outcome import Outcome
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import (
    CHAT,
    Answer,
    Connection,
    Running,
    chat_body,
    eventually,
    gateway_before,
    parse,
    run,
)
from tests.gateway.nginx import Nginx, nginx_before

TEXT = "".join(f"tok{index} " for index in range(16))
SERVERS = pytest.mark.parametrize("server", ["plain", "kept"])
ID = ("x-request-id", "one")


async def asks(nginx: Nginx, server: str, **fields: object) -> Connection:
    return await nginx.connect(server, CHAT, chat_body(**fields), ID)


async def answer_of(nginx: Nginx, server: str, **fields: object) -> bytes:
    connection = await asks(nginx, server, **fields)
    try:
        return await connection.reader.read()
    finally:
        connection.leave()


@SERVERS
def test_each_token_comes_at_once(server: str) -> None:
    """The node does not go on before the client has the token: buffered, this would hang."""

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate, gate_after=1))
        async with gateway_before(node) as running, nginx_before(running.port) as nginx:
            connection = await asks(nginx, server, stream=True)
            head = await connection.read_until(b"\r\n\r\n")
            assert b"content-type: text/event-stream" in head.lower()
            assert b"cache-control: no-cache" in head.lower()
            assert b"content-encoding" not in head.lower()
            first = await connection.read_until(b"tok0")
            gate.set()
            answer = parse(head + first + await connection.reader.read())
            assert (answer.text, answer.events[-1]) == (TEXT, "[DONE]")
            connection.leave()

    run(scenario())


def test_each_token_comes_at_once_even_when_nginx_compresses() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate, gate_after=1))
        async with gateway_before(node) as running, nginx_before(running.port) as nginx:
            body = chat_body(stream=True)
            connection = await nginx.connect("zipped", CHAT, body, ("accept-encoding", "gzip"))
            head = await connection.read_until(b"\r\n\r\n")
            assert b"content-encoding: gzip" in head.lower()
            text = b""
            unzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
            while b"tok0" not in text:
                size = int(await connection.reader.readline(), 16)
                text += unzip.decompress(await connection.reader.readexactly(size))
                await connection.reader.readline()
            gate.set()
            await connection.reader.read()
            connection.leave()

    run(scenario())


@SERVERS
def test_whole_answers_and_errors_come_through(server: str) -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running, nginx_before(running.port) as nginx:
            whole = parse(await answer_of(nginx, server))
            assert (whole.status, whole.text) == (200, TEXT)
            assert whole.headers["x-request-id"] == "one"
            wrong = parse(await answer_of(nginx, server, temperature="hot"))
            assert (wrong.status, wrong.error["param"]) == (400, "temperature")

    run(scenario())


def test_connections_to_the_gateway_are_kept() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running, nginx_before(running.port) as nginx:
            for _ in range(3):
                for stream in (True, False):
                    assert parse(await answer_of(nginx, "kept", stream=stream)).text == TEXT
            assert len(running.server.server_state.connections) == 1

    run(scenario())


@SERVERS
@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_nginx_leaves_the_node(server: str, stream: bool) -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event(), gate_after=2 if stream else None))
        async with gateway_before(node) as running, nginx_before(running.port) as nginx:
            connection = await asks(nginx, server, stream=stream)
            await node.wait_received(1)
            if stream:
                await connection.read_until(b"tok1")
            connection.leave()
            await node.wait_for(lambda: node.cancelled == 1)
            await eventually(lambda: len(running.gateway.exchanges) == 0)
            assert running.record("one").outcome == Outcome.CANCELLED.value

    run(scenario())


def test_a_body_that_nginx_takes_is_taken_and_one_that_it_refuses_never_comes() -> None:
    """nginx's own limit is 1 MiB: its answer is not ours."""

    async def scenario() -> None:
        node = FakeNode()
        long = [{"role": "user", "content": "x" * 3_000_000}]
        async with gateway_before(node) as running, nginx_before(running.port) as nginx:
            assert parse(await answer_of(nginx, "kept", messages=long)).status == 200
            refused = await answer_of(nginx, "plain", messages=long)
            assert refused.startswith(b"HTTP/1.1 413")
            assert len(node.received) == 1

    run(scenario())


async def beats(connection: Connection, count: int) -> bytes:
    """Return what has come with that many comments."""
    return b"".join([await connection.read_until(b": keep-alive\n\n") for _ in range(count)])


@pytest.mark.parametrize("where", ["queue", "prefill"])
def test_a_wait_longer_than_nginxs_patience_is_not_cut(where: str) -> None:
    """Nine comments at 0.2 s are longer than its 1 s."""

    async def scenario() -> None:
        gate = asyncio.Event()
        held = Behaviour(gate=gate, gate_after=0 if where == "prefill" else None)
        node = FakeNode(behaviour=held)
        quick: dict[str, Any] = {"heartbeat_s": 0.2, "status_timeout_s": 0.2, "max_inflight": 1}
        async with (
            gateway_before(node, **quick) as running,
            nginx_before(running.port) as nginx,
        ):
            others = await _fill(running, node) if where == "queue" else None
            connection = await asks(nginx, "hasty", stream=True)
            waited = await beats(connection, 9)
            assert len(node.received) == 1
            gate.set()
            answer = parse(waited + await connection.reader.read())
            connection.leave()
            assert (answer.status, answer.text, answer.events[-1]) == (200, TEXT, "[DONE]")
            if others is not None:
                assert (await others).status == 200

    run(scenario())


async def _fill(running: Running, node: FakeNode) -> "asyncio.Task[Answer]":
    """Give the node its one request."""
    other = asyncio.create_task(running.chat())
    await node.wait_received(1)
    return other
