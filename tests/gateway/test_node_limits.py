"""How the number of requests at a node follows what it shows, through a running gateway (A12)."""

import asyncio

from headway.clock import ManualClock
from headway.config import KeyConfig
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import Running, eventually, gateway_before, run

ROOMY = {"vllm:num_requests_waiting": 0.0, "vllm:kv_cache_usage_perc": 0.1}
TOKENS = tuple(f"t{index} " for index in range(80))
PROMPT = "You answer customers of a shop, briefly and kindly. " * 30


def limit_of(running: Running, node: int = 0) -> int:
    return running.gateway.pool.nodes[node].limit


async def window(
    running: Running, node: FakeNode, clock: ManualClock, gap_s: float = 0.0, count: int = 7
) -> int:
    """Fill the node with streams that pause once for `gap_s`, end the window, return the limit."""
    gate = asyncio.Event()
    node.behaviour = Behaviour(tokens=TOKENS[:16], gate=gate, gate_after=4)
    meter, before = running.gateway.pool.nodes[0].meter, len(node.received)
    seen = meter.tokens + 4 * count
    streams = [asyncio.create_task(running.chat(stream=True)) for _ in range(count)]
    await node.wait_received(before + count)
    await eventually(lambda: meter.tokens >= seen)
    assert running.gateway.pool.nodes[0].starting == [0, 0, 0], "each has its first token"
    clock.advance(gap_s)
    gate.set()
    for stream in streams:
        assert (await stream).status == 200
    node.behaviour = Behaviour(tokens=TOKENS)
    while meter.tokens < 500 and meter.completions < 20 and not meter.failed:
        assert (await running.chat(stream=True)).status == 200
    clock.advance(1.0)
    await running.probe()
    return limit_of(running)


def test_a_node_that_keeps_its_target_gets_more() -> None:
    async def scenario() -> None:
        clock, node = ManualClock(100.0), FakeNode(metrics=dict(ROOMY))
        async with gateway_before(node, clock=clock) as running:
            limits = [await window(running, node, clock) for _ in range(3)]
            assert limits == [9, 9, 9]  # seven in flight use eight places, and not nine
            assert await running.metric('headway_node_limit{node="n0"}') == 9

    run(scenario())


def test_gaps_above_the_target_of_the_tier_lower_the_limit() -> None:
    async def scenario() -> None:
        clock, node = ManualClock(100.0), FakeNode(metrics=dict(ROOMY))
        async with gateway_before(node, clock=clock) as running:
            assert await window(running, node, clock, gap_s=50.0) == 5

    run(scenario())


def test_a_node_that_plans_by_tier_keeps_its_slots_however_long_its_gaps() -> None:
    async def scenario() -> None:
        clock = ManualClock(100.0)
        node = FakeNode(metrics={**ROOMY, "vllm:num_requests_waiting": 30.0}, max_num_seqs=8)
        async with gateway_before(node, clock=clock) as running:
            for _ in range(3):
                assert await window(running, node, clock, gap_s=50.0) == 8

    run(scenario())


def test_limits_stay_where_they_are_when_told_to() -> None:
    async def scenario() -> None:
        clock, node = ManualClock(100.0), FakeNode(metrics=dict(ROOMY))
        async with gateway_before(node, clock=clock, adaptive_limits=False) as running:
            assert await window(running, node, clock, gap_s=50.0) == 8

    run(scenario())


def test_a_queue_inside_the_node_lowers_the_limit_and_missing_metrics_only_freeze_it() -> None:
    async def scenario() -> None:
        clock, node = ManualClock(100.0), FakeNode(metrics=dict(ROOMY))
        async with gateway_before(node, clock=clock) as running:
            assert await window(running, node, clock) == 9
            node.metrics = {}
            clock.advance(60.0)
            for _ in range(3):
                assert await window(running, node, clock, count=8) == 9
            node.metrics = {**ROOMY, "vllm:num_requests_waiting": 6.0}
            await running.probe()
            assert await window(running, node, clock) == 6

    run(scenario())


def test_a_failure_halves_the_limit() -> None:
    async def scenario() -> None:
        clock, node = ManualClock(100.0), FakeNode(metrics=dict(ROOMY))
        async with gateway_before(node, clock=clock) as running:
            assert (await running.chat()).status == 200
            await running.probe()
            node.script.append(Behaviour(status=500))
            assert (await running.chat()).status == 200
            clock.advance(1.0)
            await running.probe()
            assert limit_of(running) == 4

    run(scenario())


def test_a_node_that_is_lost_and_found_has_all_its_places_again() -> None:
    """What it had in flight is given back, once, and whoever waits goes elsewhere."""

    async def scenario() -> None:
        gate = asyncio.Event()
        lost = FakeNode(behaviour=Behaviour(gate=gate, gate_after=1))
        other = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(lost, other, max_inflight=4) as running:
            pool = running.gateway.pool
            streams = [asyncio.create_task(running.chat(stream=True)) for _ in range(4)]
            await lost.wait_received(4)
            assert pool.free(0.0)[1] == 4
            await lost.stop()
            for stream in streams:
                assert "[DONE]" not in (await stream).events
            assert list(pool.nodes[0].inflight) == [0, 0, 0]
            await running.probe()
            assert pool.free(0.0)[1] == 4
            pool.check_integrity()
            gate.set()
            await lost.start()
            await running.probe()
            for _ in range(2):
                assert (await running.chat()).status == 200
            assert pool.free(0.0)[1] == 4 + limit_of(running)

    run(scenario())


def test_a_prefix_brings_a_request_back_to_its_node_and_no_other_tenants() -> None:
    """G11: the same prompt of another tenant goes where it would go anyway."""
    keys = [KeyConfig(key=name, tenant=name, highest_tier="critical") for name in ("a", "b")]
    prompt = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "hi"}]

    async def scenario() -> None:
        first, second = FakeNode(max_num_seqs=32), FakeNode(max_num_seqs=32)

        async def ask(running: Running, key: str) -> str:
            headers = (("authorization", f"Bearer {key}"), ("x-priority", "critical"))
            answer = await running.chat(*headers, messages=prompt)
            return answer.headers["x-headway-node"]

        async with gateway_before(first, second, keys=keys) as running:
            gate = asyncio.Event()
            first.behaviour = Behaviour(gate=gate)
            busy = asyncio.create_task(running.chat(("authorization", "Bearer a")))
            await first.wait_received(1)
            assert await ask(running, "a") == "n1"
            gate.set()
            await busy
            assert [await ask(running, key) for key in ("a", "b", "a", "b")] == [
                *("n1", "n0", "n1", "n0")
            ]

    run(scenario())


def test_desired_replicas_are_shown() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode(), FakeNode()) as running:
            assert (await running.chat()).status == 200
            assert await running.metric("headway:desired_replicas") == 2

    run(scenario())
