"""Are the phases run in order, each with its own load, and is every server opened and closed?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from headway.bench.client import Server
from headway.bench.engine_speed import measure_speed
from headway.bench.isolation import (
    ALL_PHASES,
    BULK_ALONE,
    FLOOD,
    UNLOADED,
    IsolationReport,
    Run,
    measure,
    phase_load,
)
from headway.bench.load import Load, Phase, Shape
from headway.bench.stack import Stack
from headway.clock import MonotonicClock
from headway.errors import NodeError
from headway.gateway.fake_answers import Behaviour
from headway.gateway.fake_node import FakeNode

LOAD = Load(
    bulk=Shape(tier="bulk", num_prompt_tokens=40, num_output_tokens=8),
    # Long enough that two random texts are never the same: a word counts as several tokens here.
    critical=Shape(tier="critical", num_prompt_tokens=40, num_output_tokens=4),
    bulk_callers=2,
    critical_every_s=0.03,
    duration_s=0.3,
    warmup_s=0.05,
    grace_s=5.0,
)


class Bench:
    """Fake servers, and a note of everything that happened to them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.nodes: list[FakeNode] = []

    def run(self, label: str, phases: tuple[str, ...]) -> Run:
        """A run on a node of its own."""

        @asynccontextmanager
        async def opened() -> AsyncIterator[Server]:
            self.log.append(f"open {label}")
            node = FakeNode(behaviour=Behaviour(first_token_s=0.005))
            self.nodes.append(node)
            await node.start()
            yield Server(base_url=node.url)
            await node.wait_for(lambda: node.running == 0)
            await node.stop()
            self.log.append(f"close {label}")

        return Run(label=label, phases=phases, open=opened)

    def watch(self, label: str, name: str, phase: Phase) -> AbstractAsyncContextManager[None]:
        """Note a phase."""

        @asynccontextmanager
        async def watched() -> AsyncIterator[None]:
            self.log.append(f"{label} {name}")
            yield

        return watched()


def run(bench: Bench, runs: list[Run], *, repeat: int = 1) -> IsolationReport:
    """Measure without pauses."""
    return asyncio.run(
        measure(
            runs,
            LOAD,
            MonotonicClock(),
            watch=bench.watch,
            repeat=repeat,
            alternate=True,
            settle_s=0.0,
        )
    )


def test_every_phase_of_every_run_is_measured_in_turn() -> None:
    bench = Bench()
    report = run(bench, [bench.run("a", (FLOOD,)), bench.run("b", ALL_PHASES)], repeat=2)
    a, b = ["a flood"], ["b unloaded", "b bulk-alone", "b flood"]
    a, b = ["open a", *a, "close a"], ["open b", *b, "close b"]
    assert bench.log == [*a, *b, *b, *a]
    assert report.labels() == ["a", "b"]
    assert [phase.repeat for phase in report.phases] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [set(phase.tiers) for phase in report.phases[:4]] == [
        {"critical", "bulk"},
        {"critical"},
        {"bulk"},
        {"critical", "bulk"},
    ]
    flood = report.middle("b", FLOOD, "critical")
    assert flood is not None
    assert flood.num_errors == 0
    assert flood.output_tokens_mean == 4
    assert flood.ttft_p50_s is not None
    assert flood.ttft_p50_s >= 0.005
    assert report.middle("a", UNLOADED, "critical") is None
    assert all(point.sent_s < LOAD.duration_s for point in report.phases[0].points)


def test_no_text_is_sent_twice() -> None:
    bench = Bench()
    run(bench, [bench.run("a", (BULK_ALONE, FLOOD))])
    prompts = [request.json()["prompt"] for request in bench.nodes[0].received]
    assert len(set(prompts)) == len(prompts) > 10


def test_phases_differ_only_in_who_sends() -> None:
    assert phase_load(LOAD, FLOOD) == LOAD
    assert phase_load(LOAD, UNLOADED).bulk_callers == 0
    assert phase_load(LOAD, BULK_ALONE).critical_every_s is None


def speed_of(behaviour: Behaviour) -> Callable[[], None]:
    """Return a measurement of a fake node, which checks itself."""

    async def scenario() -> None:
        node = FakeNode(behaviour=behaviour)
        await node.start()
        shape = Shape(tier="normal", num_prompt_tokens=30, num_output_tokens=10)
        server = Server(base_url=node.url)
        try:
            speed = await measure_speed(server, shape, MonotonicClock(), concurrency=4, rounds=2)
        finally:
            await node.stop()
        assert node.peak == 4
        # One to calibrate, then three rounds, of which the first is not counted.
        assert len(node.received) == 1 + 3 * (1 + 4)
        assert speed.single_ttft_s >= 0.01
        assert 5 <= speed.single_ms_per_token < 500
        assert 0 < speed.output_tokens_per_s < speed.total_tokens_per_s

    return lambda: asyncio.run(scenario())


def test_engine_speed_counts_every_token() -> None:
    speed_of(Behaviour(first_token_s=0.01, tokens_per_s=100))()


def test_engine_speed_of_a_failing_server_is_an_error_and_no_figure() -> None:
    with pytest.raises(NodeError, match="4 tokens came, 10 were asked"):
        speed_of(Behaviour(tokens=("a",) * 4))()


def test_a_stack_that_does_not_start_says_why() -> None:
    async def scenario() -> None:
        with pytest.raises(NodeError, match=r"engine\.nope: unknown key"):
            await Stack("qos", settings={"engine.nope": 1}).__aenter__()

    asyncio.run(scenario())
