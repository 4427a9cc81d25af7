"""How the gateway stops."""

import asyncio
from collections import deque

from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import eventually, gateway_before, run


def test_what_is_under_way_ends_and_the_new_is_refused() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate, gate_after=2))
        async with gateway_before(node, max_inflight=1) as running:
            stream = await running.open_chat(stream=True)
            await stream.read_until(b"tok1")
            queued = asyncio.create_task(running.chat())
            await eventually(lambda: running.queued() == 1)
            running.server.stop()
            await eventually(lambda: running.gateway.draining)
            ready = await running.get("/ready")
            assert (ready.status, ready.error["code"]) == (503, "shutting_down")
            assert (await running.get("/health")).status == 200
            refused = await running.chat()
            assert (refused.status, refused.error["code"]) == (503, "shutting_down")
            assert refused.headers["x-headway-drop-reason"] == "rejected-shutting-down"
            assert not running.server.should_exit
            gate.set()
            assert b"[DONE]" in await stream.reader.read()
            stream.leave()
            assert (await queued).status == 200
            await eventually(lambda: running.server.should_exit)

    run(scenario())


def test_what_takes_too_long_is_told_so() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        script = deque([Behaviour(gate=gate, gate_after=2), Behaviour(gate=gate)])
        node = FakeNode(script=script)
        async with gateway_before(node, max_inflight=2, drain_s=0.1) as running:
            stream = await running.open_chat(("x-request-id", "s"), stream=True)
            await stream.read_until(b"tok1")
            whole = asyncio.create_task(running.chat(("x-request-id", "w")))
            await node.wait_received(2)
            queued = asyncio.create_task(running.chat(("x-request-id", "q"), stream=True))
            await eventually(lambda: running.queued() == 1)
            running.server.stop()
            rest = await stream.reader.read()
            assert b"shutting_down" in rest
            assert b"[DONE]" not in rest
            stream.leave()
            for answer in (await whole, await queued):
                assert (answer.status, answer.error["code"]) == (503, "shutting_down")
            for id in ("s", "w", "q"):
                assert running.record(id).outcome == "evicted-shutting-down"
            await node.wait_for(lambda: node.running == 0)

    run(scenario())


def test_a_second_signal_ends_it_at_once() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        async with gateway_before(node) as running:
            waiting = await running.open_chat()
            await node.wait_received(1)
            ends: list[tuple[bool, bool]] = []
            for _ in range(2):
                running.server.stop()
                ends.append((running.server.should_exit, running.server.force_exit))
            assert ends == [(False, False), (True, True)]
            waiting.leave()
            await running.gateway.exchanges.wait_idle()

    run(scenario())
