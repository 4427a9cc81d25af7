"""What does a stream see that waits long, and how does it hear of a failure? (C5, C7)"""

import asyncio
from typing import Any

from headway.gateway.fake_node import Behaviour, FakeNode
from headway.wire.sse import COMMENT
from tests.gateway.harness import Running, chat_body, gateway_before, parse, run

SOON: dict[str, Any] = {"status_timeout_s": 0.02, "heartbeat_s": 0.02, "max_inflight": 1}


async def occupy(running: Running, node: FakeNode) -> "asyncio.Task[Any]":
    """Give the node the one request that it takes."""
    other = asyncio.create_task(running.chat())
    await node.wait_received(1)
    return other


def test_a_stream_that_waits_in_the_queue_begins_and_beats() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, **SOON) as running:
            other = await occupy(running, node)
            connection = await running.open_chat(stream=True)
            waited = b"".join([await connection.read_until(COMMENT) for _ in range(3)])
            assert running.queued() == 1
            gate.set()
            answer = parse(waited + await connection.reader.read())
            assert (answer.status, answer.events[-1]) == (200, "[DONE]")
            assert (await other).status == 200
            connection.leave()

    run(scenario())


def test_a_request_that_is_refused_after_its_status_hears_it_in_the_stream() -> None:
    """Shed or called wrong by the node: one error event, no [DONE]; its outcome is the true one."""

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        node.script.extend([Behaviour(gate=gate), Behaviour(status=400, error_message="too long")])
        async with gateway_before(node, **SOON) as running:
            other = await occupy(running, node)
            late = await running.open_chat(("x-request-id", "late"), stream=True)
            waited = await late.read_until(COMMENT)
            gate.set()
            answer = parse(waited + await late.reader.read())
            assert answer.status == 200
            [event] = answer.chunks
            assert event["error"]["message"] == "too long"
            assert "[DONE]" not in answer.events
            assert running.record("late").outcome == "rejected-invalid"
            assert (await other).status == 200
            late.leave()

    run(scenario())


def test_a_stream_that_is_answered_soon_has_its_own_status() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(status=400, error_message="too long"))
        async with gateway_before(node) as running:
            answer = await running.send("/v1/chat/completions", chat_body(stream=True))
            assert (answer.status, answer.error["message"]) == (400, "too long")

    run(scenario())
