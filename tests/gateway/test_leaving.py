"""The client goes away: everything stops (trials A4 and C1)."""

import asyncio
import socket
from dataclasses import replace
from functools import partial

import pytest

from headway.clock import ManualClock
from headway.config import KeyConfig
from headway.core.tier import DEFAULT_TIERS, Tiers
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import Connection, eventually, gateway_before, run

NUM_TOKENS = 16
NORMAL, BULK = 1, 2


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_leaving_the_queue(stream: bool, reset: bool) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, max_inflight=1) as running:
            first = await running.open_chat()
            await node.wait_received(1)
            second = await running.open_chat(("x-request-id", "left"), stream=stream)
            await eventually(lambda: running.queued() == 1)
            second.leave(reset=reset)
            await eventually(lambda: running.queued() == 0)
            gate.set()
            assert b"tok15" in await first.reader.read()
            first.leave()
            assert len(node.received) == 1
            record = running.record("left")
            assert (record.outcome, record.node, record.completion_tokens) == ("cancelled", None, 0)

    run(scenario())


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize(
    ("stream", "gate_after", "last_seen"),
    [
        (False, None, None),
        (True, None, None),
        (True, 0, None),
        (True, 1, b"tok0"),
        (True, 8, b"tok7"),
        (True, NUM_TOKENS, b"tok15"),
    ],
)
def test_leaving_the_node(
    stream: bool, gate_after: int | None, last_seen: bytes | None, reset: bool
) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate, gate_after=gate_after))
        async with gateway_before(node) as running:
            connection = await running.open_chat(("x-request-id", "left"), stream=stream)
            await node.wait_received(1)
            if last_seen is not None:
                await connection.read_until(last_seen)
            connection.leave(reset=reset)
            await node.wait_for(lambda: node.cancelled == 1 and node.running == 0)
            await running.gateway.exchanges.wait_idle()
            record = running.record("left")
            assert record.outcome == "cancelled"
            seen = 0 if gate_after is None else gate_after
            assert record.completion_tokens == (seen if last_seen is not None else 0)
            gate.set()
            assert (await running.chat()).status == 200

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_g3_who_leaves_before_the_first_token_is_charged_what_was_predicted(stream: bool) -> None:
    """Otherwise a tenant whose clients time out is served for free and others wait for it."""
    keys = tuple(KeyConfig(key=f"k{tenant}", tenant=tenant) for tenant in "ab")

    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        async with gateway_before(node, keys=keys, max_inflight=1) as running:

            def arrived(count: int) -> bool:
                return len(node.received) + running.queued() == count

            for number, tenant in enumerate("aab", 1):
                await running.open_chat(
                    ("authorization", f"Bearer k{tenant}"), user=tenant, stream=stream
                )
                await eventually(partial(arrived, number))
            running.connections[0].leave()
            await node.wait_received(2)
            assert [got.json()["user"] for got in node.received] == ["a", "b"]
            for connection in running.connections:
                connection.leave()

    run(scenario())


@pytest.mark.parametrize("reset", [False, True])
def test_leaving_after_the_last_content_is_no_cancellation(reset: bool) -> None:
    """Between the end of the choices and the usage chunk; the tokens are counted all the same."""

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate, gate_after=NUM_TOKENS + 1))
        async with gateway_before(node) as running:
            connection = await running.open_chat(
                ("x-request-id", "left"), stream=True, stream_options={"include_usage": True}
            )
            await connection.read_until(b'"finish_reason":"stop"')
            connection.leave(reset=reset)
            await running.gateway.exchanges.wait_idle()
            record = running.record("left")
            assert (record.outcome, record.estimated) == ("completed", True)
            assert record.completion_tokens == NUM_TOKENS
            await node.wait_for(lambda: node.running == 0)

    run(scenario())


def test_a_normal_close_after_the_end_is_a_completion() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running:
            for stream in (False, True):
                answer = await running.chat(("x-request-id", "done"), stream=stream)
                assert answer.status == 200
                await running.gateway.exchanges.wait_idle()
                record = running.record("done")
                assert (record.outcome, record.estimated) == ("completed", False)

    run(scenario())


def test_a_client_that_stops_reading_is_cut() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(tokens=("x" * 100_000,) * 400))
        async with gateway_before(node, write_timeout_s=0.3) as running:
            connection = await _deaf_client(running.port)
            async with asyncio.timeout(5):
                await node.wait_for(lambda: node.cancelled == 1 and node.running == 0)
                await running.gateway.exchanges.wait_idle()
            assert await running.metric(
                'headway_requests_total{model="fake-model",outcome="cancelled"'
            )
            connection.leave()

    run(scenario())


async def _deaf_client(port: int) -> Connection:
    """Ask for a stream on a socket that takes next to nothing, and never read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    body = b'{"model":"fake-model","messages":[{"role":"user","content":"x"}],"stream":true}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(
        body
    )
    writer.write(head + body)
    return Connection(reader, writer)


def test_the_dead_leave_the_queue_at_once() -> None:
    """Trial A4: time-outs are answered on time, and who left never reaches the node.

    Time stands still until all wait: one whose time passes before it joins is refused instead.
    """
    timeout_s = 0.4
    clock = ManualClock(100.0)
    tiers = Tiers(
        tuple(
            replace(tier, queue_timeout_s=timeout_s if tier.name == "normal" else None)
            for tier in DEFAULT_TIERS
        )
    )

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, tiers=tiers, clock=clock, max_inflight=1) as running:
            busy = asyncio.create_task(running.chat())
            await node.wait_received(1)
            leaving = [await running.open_chat(("x-priority", "bulk")) for _ in range(50)]
            await eventually(lambda: running.queued_of(BULK) == 50)
            names = [f"late-{number}" for number in range(50)]
            chats = [running.chat(("x-request-id", name)) for name in names]
            timing_out = list(map(asyncio.create_task, chats))
            await eventually(lambda: running.queued_of(NORMAL) == 50)
            for connection in leaving:
                connection.leave()
            await eventually(lambda: running.queued_of(BULK) == 0)
            live = asyncio.create_task(running.chat(("x-priority", "bulk"), user="live"))
            await eventually(lambda: running.queued_of(BULK) == 1)
            assert not any(task.done() for task in timing_out)
            clock.advance(timeout_s)
            answers = await asyncio.gather(*timing_out)
            took_ms = [running.record(name).e2e_ms for name in names]
            assert took_ms == pytest.approx([timeout_s * 1000] * 50)
            assert {answer.status for answer in answers} == {429}
            assert {answer.error["code"] for answer in answers} == {"queue_timeout"}
            assert {a.headers["x-headway-drop-reason"] for a in answers} == {"rejected-ttl-expired"}
            assert all(1 <= int(answer.headers["retry-after"]) <= 120 for answer in answers)
            assert await running.metric('headway_queue_depth{tier="normal"}') == 0
            assert running.queued() == 1
            gate.set()
            assert (await live).status == (await busy).status == 200
            assert [got.json().get("user") for got in node.received] == [None, "live"]

    run(scenario())
