"""Is load offered as described: bulk in a closed loop, critical in an open one?"""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from headway.bench.client import BenchClient, Server
from headway.bench.load import Load, Phase, Shape, arrival_times, run_phase, start_phase
from headway.bench.prompts import PromptSource
from headway.clock import MonotonicClock
from headway.gateway.fake_answers import Behaviour
from headway.gateway.fake_node import FakeNode

LOAD = Load(
    bulk=Shape(tier="bulk", num_prompt_tokens=40, num_output_tokens=8),
    critical=Shape(tier="critical", num_prompt_tokens=8, num_output_tokens=4),
    bulk_callers=3,
    critical_every_s=0.05,
    duration_s=0.5,
    warmup_s=0.0,
    grace_s=5.0,
)


def run(node: FakeNode, load: Load) -> Phase:
    """Run one phase against the node."""

    async def scenario() -> Phase:
        await node.start()
        phase = start_phase(load, MonotonicClock())
        async with BenchClient(Server(base_url=node.url)) as client:
            await run_phase(phase, client, PromptSource(Random(0)))
        await node.wait_for(lambda: node.running == 0)
        await node.stop()
        return phase

    return asyncio.run(scenario())


def test_arrivals_are_the_same_for_a_seed_and_have_the_asked_rate() -> None:
    times = arrival_times(7, 2.0, 20_000.0)
    assert times == arrival_times(7, 2.0, 20_000.0)
    assert times != arrival_times(8, 2.0, 20_000.0)
    assert times == sorted(times)
    assert times[-1] < 20_000.0
    # 10,000 arrivals expected, with a standard deviation of 100.
    assert len(times) == pytest.approx(10_000, abs=500)


def test_bulk_callers_send_their_next_request_when_the_last_has_ended() -> None:
    node = FakeNode(behaviour=Behaviour(first_token_s=0.02))
    phase = run(node, replace(LOAD, critical_every_s=None))
    assert node.peak == 3
    assert len(phase.records) > 3
    assert {record.tier for record in phase.records} == {"bulk"}
    assert phase.now() < 5


def test_critical_requests_arrive_on_time_however_slow_the_server_is() -> None:
    gate = asyncio.Event()
    node = FakeNode(behaviour=Behaviour(gate=gate))
    phase = run(node, replace(LOAD, bulk_callers=0, grace_s=0.2))
    due = arrival_times(LOAD.seed, 0.05, LOAD.duration_s)
    assert len(phase.records) == len(due)
    for record, at in zip(phase.records, due, strict=True):
        assert record.sent_s >= at
        assert record.waited_s is not None
        assert record.ttft_s == record.waited_s >= 0.2
    assert node.cancelled == len(due)


def test_bulk_has_the_server_to_itself_until_critical_requests_begin() -> None:
    node = FakeNode(behaviour=Behaviour(first_token_s=0.02))
    phase = run(node, replace(LOAD, critical_from_s=0.3))
    sent = [record.sent_s for record in phase.records if record.tier == "critical"]
    due = [0.3 + at for at in arrival_times(LOAD.seed, 0.05, LOAD.duration_s - 0.3)]
    assert len(sent) == len(due) > 0
    assert all(at >= on_time for at, on_time in zip(sent, due, strict=True))
    assert any(r.tier == "bulk" and r.sent_s < 0.1 for r in phase.records)


def test_critical_requests_are_waited_for_while_bulk_goes_on() -> None:
    node = FakeNode(concurrency=1, behaviour=Behaviour(first_token_s=0.02))
    phase = run(node, LOAD)
    critical = [record for record in phase.records if record.tier == "critical"]
    assert critical
    assert all(record.finished and record.error is None for record in critical)
    last = max(record.chunk_s[-1] for record in critical)
    assert any(r.tier == "bulk" and LOAD.duration_s < r.sent_s <= last for r in phase.records)


def test_refused_callers_pause_instead_of_hammering() -> None:
    node = FakeNode(behaviour=Behaviour(status=503))
    phase = run(node, replace(LOAD, critical_every_s=None))
    assert len(phase.records) == 3
    assert all(record.error is not None for record in phase.records)


def test_a_cancelled_phase_leaves_nothing_running() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        await node.start()
        async with BenchClient(Server(base_url=node.url)) as client:
            phase = start_phase(replace(LOAD, duration_s=600), MonotonicClock())
            task = asyncio.create_task(run_phase(phase, client, PromptSource(Random(0))))
            await node.wait_received(5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await node.wait_for(lambda: node.running == 0)
            assert node.cancelled == len(node.received)
        await node.stop()

    asyncio.run(scenario())
