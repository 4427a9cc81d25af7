"""Do large bodies wait for each other, and nobody for them? (D4, I0)"""

import asyncio
import json
from collections.abc import Callable
from threading import Event

from headway.core.outcome import Outcome
from headway.gateway.fake_node import FakeNode
from tests.gateway.harness import Running, chat_body, eventually, gateway_before, run

LIMIT = 8 * 2**20
LONG = [{"role": "user", "content": "word " * 1_000_000}]


def is_in_line(running: Running, count: int) -> Callable[[], bool]:
    """Return whether that many requests are under way, and none of them is queued or at a node."""
    return lambda: len(running.gateway.exchanges) == count and running.queued() == 0


def test_while_large_bodies_wait_to_be_read_everybody_else_is_served() -> None:
    async def scenario() -> None:
        node, gate = FakeNode(), Event()
        async with gateway_before(node, max_body_bytes=LIMIT) as running:
            reading = asyncio.create_task(running.gateway.bodies.run(LIMIT, gate.wait))
            large = [asyncio.create_task(running.chat(messages=LONG)) for _ in range(20)]
            await eventually(is_in_line(running, 20))
            assert (await running.get("/health")).status == 200
            assert (await running.chat()).status == 200
            assert len(node.received) == 1
            gate.set()
            assert {answer.status for answer in await asyncio.gather(*large)} == {200}
            assert await reading is True
            assert node.received[-1].json()["messages"] == LONG

    run(scenario())


def test_who_leaves_while_its_body_waits_is_not_read() -> None:
    async def scenario() -> None:
        node, gate = FakeNode(), Event()
        async with gateway_before(node, max_body_bytes=LIMIT) as running:
            reading = asyncio.create_task(running.gateway.bodies.run(LIMIT, gate.wait))
            connection = await running.open_chat(("x-request-id", "gone"), messages=LONG)
            await connection.writer.drain()
            await eventually(is_in_line(running, 1))
            connection.leave()
            await eventually(is_in_line(running, 0))
            gate.set()
            await reading
            assert running.record("gone").outcome == Outcome.CANCELLED.value
            assert node.received == []

    run(scenario())


def test_a_large_body_reaches_the_node_whole_and_only_announced_by_its_length() -> None:
    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node, max_body_bytes=LIMIT) as running:
            assert (await running.chat(messages=LONG)).status == 200
            [received] = node.received
            assert received.header("content-length") == [str(len(received.body))]
            assert received.header("transfer-encoding") == []

    run(scenario())


def test_five_megabytes_of_many_values_are_refused_and_never_sent() -> None:
    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node, max_body_bytes=LIMIT) as running:
            body = chat_body(chat_template_kwargs={"a": [[]] * 1_000_000})
            answer = await running.send("/v1/chat/completions", body)
            assert (answer.status, answer.error["code"]) == (400, "too_many_values")
            prompt = json.dumps({"model": "fake-model", "prompt": list(range(700_000))})
            answer = await running.send("/v1/completions", prompt.encode())
            assert (answer.status, answer.error["code"]) == (400, "too_many_values")
            assert node.received == []
            assert (await running.chat()).status == 200

    run(scenario())
