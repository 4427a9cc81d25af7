"""How is load offered?

Bulk work is a closed loop: each caller sends its next request when the last one has ended. Critical
requests are an open loop: they arrive at random whatever happens to those before, as people do.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headway.bench.client import BenchClient
from headway.bench.prompts import PromptSource
from headway.bench.records import RequestRecord
from headway.clock import Clock

_ERROR_PAUSE_S = 1.0
"""A caller that was refused waits, so that a full server is not hammered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of one kind of request, in tokens."""

    tier: str
    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is offered in one phase."""

    bulk: Shape = field(
        default_factory=lambda: Shape(tier="bulk", num_prompt_tokens=400, num_output_tokens=128)
    )
    critical: Shape = field(
        default_factory=lambda: Shape(tier="critical", num_prompt_tokens=64, num_output_tokens=32)
    )
    bulk_callers: int = 48
    critical_every_s: float | None = 2.0
    """Mean time between critical arrivals; None: there are none."""
    critical_from_s: float = 0.0
    """When they begin to arrive; until then bulk has the server to itself."""
    duration_s: float = 120.0
    warmup_s: float = 30.0
    """Beginning of the phase that is not counted."""
    grace_s: float = 90.0
    """After the phase, how long critical requests are still waited for, under the same load."""
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class Phase:
    """One phase while it runs and after. Times are seconds since it began."""

    load: Load
    now: Callable[[], float]
    records: list[RequestRecord] = field(default_factory=list)


def start_phase(load: Load, clock: Clock) -> Phase:
    """Return a phase that begins now."""
    start = clock.now()
    return Phase(load=load, now=lambda: clock.now() - start)


async def run_phase(phase: Phase, client: BenchClient, prompts: PromptSource) -> None:
    """Offer the load until the phase is over and its critical requests have ended."""
    load = phase.load
    bulk = [
        asyncio.create_task(_closed_loop(phase, client, prompts)) for _ in range(load.bulk_callers)
    ]
    critical: set[asyncio.Task[RequestRecord]] = set()
    try:
        await _arrivals(phase, client, prompts, critical)
        await _pause_until(phase, load.duration_s)
        if critical:
            await asyncio.wait(critical, timeout=load.grace_s)
    finally:
        for task in (*bulk, *critical):
            task.cancel()
        await asyncio.gather(*bulk, *critical, return_exceptions=True)
    for record in phase.records:
        if record.tier == load.critical.tier and not record.chunk_s and record.error is None:
            record.waited_s = phase.now() - record.sent_s


def arrival_times(seed: int, every_s: float, duration_s: float) -> list[float]:
    """Return when Poisson arrivals come: the same for the same seed, whatever the server."""
    random = Random(seed)
    times: list[float] = []
    at = random.expovariate(1 / every_s)
    while at < duration_s:
        times.append(at)
        at += random.expovariate(1 / every_s)
    return times


async def _arrivals(
    phase: Phase,
    client: BenchClient,
    prompts: PromptSource,
    tasks: set[asyncio.Task[RequestRecord]],
) -> None:
    load = phase.load
    if load.critical_every_s is None:
        return
    offered_s = load.duration_s - load.critical_from_s
    for at in arrival_times(load.seed, load.critical_every_s, offered_s):
        await _pause_until(phase, load.critical_from_s + at)
        tasks.add(asyncio.create_task(_one(phase, client, prompts, load.critical)))


async def _closed_loop(phase: Phase, client: BenchClient, prompts: PromptSource) -> None:
    while True:
        record = await _one(phase, client, prompts, phase.load.bulk)
        if record.error is not None:
            await asyncio.sleep(_ERROR_PAUSE_S)


async def _one(
    phase: Phase, client: BenchClient, prompts: PromptSource, shape: Shape
) -> RequestRecord:
    prompt = prompts.text(shape.num_prompt_tokens)
    record = RequestRecord(tier=shape.tier, sent_s=phase.now())
    phase.records.append(record)
    await client.send(record, prompt, shape.num_output_tokens, phase.now)
    return record


async def _pause_until(phase: Phase, at: float) -> None:
    await asyncio.sleep(max(0.0, at - phase.now()))
