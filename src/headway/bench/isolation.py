"""How much of a flood of bulk work does a critical request feel?

Three phases: *unloaded* is critical work alone, *bulk-alone* bulk work alone, *flood* both. A run
is one server with its phases; our own stack runs first come first served and by tier.
"""

import asyncio
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from random import Random

from headway.bench.client import BenchClient, Server, calibrate
from headway.bench.load import Load, Phase, run_phase, start_phase
from headway.bench.prompts import PromptSource
from headway.bench.summary import TierSummary, middle, summarize
from headway.clock import Clock

UNLOADED = "unloaded"
BULK_ALONE = "bulk-alone"
FLOOD = "flood"
ALL_PHASES = (UNLOADED, BULK_ALONE, FLOOD)
SETTLE_S = 2.0
"""Between phases, for what was cut off to leave the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One server to be measured: `open()` starts it if need be and gives its address."""

    label: str
    phases: tuple[str, ...]
    open: Callable[[], AbstractAsyncContextManager[Server]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One request of the plot. Times in seconds since its phase began."""

    tier: str
    sent_s: float
    ttft_s: float
    answered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReport:
    """What one phase of one run showed, by tier."""

    label: str
    phase: str
    repeat: int
    tiers: dict[str, TierSummary]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolationReport:
    """All phases, with what they were measured on."""

    load: Load
    phases: tuple[PhaseReport, ...]
    machine: str = field(default_factory=lambda: f"{os.cpu_count()} cores, {platform.platform()}")

    def middle(self, label: str, phase: str, tier: str) -> TierSummary | None:
        """Return the medians over the repeats; None when that was not measured."""
        found = [
            report.tiers[tier]
            for report in self.phases
            if (report.label, report.phase) == (label, phase) and tier in report.tiers
        ]
        return middle(found) if found else None

    def was_measured(self, phase: str) -> bool:
        """Return whether some run's phase of that name has ended."""
        return any(report.phase == phase for report in self.phases)

    def labels(self) -> list[str]:
        """Return the runs in the order in which they first came."""
        return list(dict.fromkeys(report.label for report in self.phases))


Watch = Callable[[str, str, Phase], AbstractAsyncContextManager[None]]
"""Called with label, phase name and phase; what it returns is open while the phase runs."""


async def measure(
    runs: Sequence[Run],
    load: Load,
    clock: Clock,
    *,
    watch: Watch,
    repeat: int = 1,
    alternate: bool = False,
    settle_s: float = SETTLE_S,
    ended: list[PhaseReport] | None = None,
) -> IsolationReport:
    """Run every phase of every run, `repeat` times. Raises NodeError when a server does not answer.

    `alternate` turns the order of the runs around in every second repeat, so that a machine that
    gets slower or faster favours none. `ended` takes each phase as it ends: what a caller still has
    when a later one fails or is interrupted.
    """
    reports = [] if ended is None else ended
    for index in range(repeat):
        order = list(reversed(runs)) if alternate and index % 2 else list(runs)
        for run in order:
            await _measure_run(run, index, load, clock, watch, settle_s, reports)
    return IsolationReport(load=load, phases=tuple(reports))


def phase_load(load: Load, phase: str) -> Load:
    """Return what is offered in a phase of that name. Raises KeyError for another name."""
    return {
        UNLOADED: replace(load, bulk_callers=0),
        BULK_ALONE: replace(load, critical_every_s=None),
        FLOOD: load,
    }[phase]


async def _measure_run(
    run: Run,
    index: int,
    load: Load,
    clock: Clock,
    watch: Watch,
    settle_s: float,
    reports: list[PhaseReport],
) -> None:
    # The texts differ in every run, so that no server knows them; only arrivals are repeatable.
    prompts = PromptSource(Random())
    async with run.open() as server, BenchClient(server) as client:
        await calibrate(client, prompts, load.critical.tier)
        for number, name in enumerate(run.phases):
            await asyncio.sleep(settle_s if number else 0)
            phase = start_phase(phase_load(replace(load, seed=load.seed + index), name), clock)
            async with watch(run.label, name, phase):
                await run_phase(phase, client, prompts)
            reports.append(_report(run.label, name, index, phase))


def _report(label: str, name: str, index: int, phase: Phase) -> PhaseReport:
    load = phase.load
    tiers = [] if load.critical_every_s is None else [load.critical.tier]
    if load.bulk_callers:
        tiers.append(load.bulk.tier)
    points = tuple(
        Point(
            tier=record.tier,
            sent_s=record.sent_s,
            ttft_s=record.ttft_s,
            answered=record.waited_s is None,
        )
        for record in phase.records
        if record.ttft_s is not None and record.sent_s < load.duration_s
    )
    summaries = {tier: summarize(phase.records, tier, load) for tier in tiers}
    return PhaseReport(label=label, phase=name, repeat=index, tiers=summaries, points=points)
