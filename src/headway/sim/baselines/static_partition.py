"""What if every tier has its own fixed part of the engine?

The silo: slots, blocks and tokens are divided once, and each part is a vLLM of its own that serves
its tier first come, first served. What one tier leaves unused nobody gets. Kinder than separate
machines in one respect: the parts compute together, and so read the weights once.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import reduce
from typing import cast

from headway.core.predictor import StepFeatures
from headway.core.tier import Tiers
from headway.errors import ConfigError
from headway.sim.baselines.fcfs import new_fcfs
from headway.sim.scheduler import (
    Emission,
    EngineShape,
    PolicySetup,
    SchedulerStats,
    SimRequest,
    SimStep,
)

SHARES = {"critical": 0.4, "normal": 0.3, "bulk": 0.3}
"""Defaults of the knobs `share_critical` and so on; equal parts when the tiers are others."""


def share_knobs(tiers: Tiers) -> tuple[str, ...]:
    """Return the knobs that set the tiers' shares, by rank."""
    return tuple(f"share_{tier.name}" for tier in tiers.all)


def shares(knobs: Mapping[str, float], tiers: Tiers) -> tuple[float, ...]:
    """Return each tier's share of the engine, by rank.

    Raises ConfigError when one is not above 0, or when they add up to more than the engine.
    """
    names = [tier.name for tier in tiers.all]
    usual = SHARES if names == list(SHARES) else dict.fromkeys(names, 1 / len(names))
    found = tuple(
        knobs.get(knob, usual[name]) for knob, name in zip(share_knobs(tiers), names, strict=True)
    )
    for knob, share in zip(share_knobs(tiers), found, strict=True):
        if not share > 0:
            raise ConfigError(f"policy.{knob}", f"must be above 0, got {share:g}")
    if sum(found) > 1 + 1e-9:
        text = f"{' + '.join(share_knobs(tiers))} must be at most 1, got {sum(found):g}"
        raise ConfigError("policy", text)
    return found


def part_of(shape: EngineShape, share: float) -> EngineShape:
    """Return the part of an engine, at least one slot, block and token."""
    return replace(
        shape,
        max_num_seqs=max(1, int(share * shape.max_num_seqs + 1e-9)),
        max_num_batched_tokens=max(1, int(share * shape.max_num_batched_tokens + 1e-9)),
        num_blocks=max(1, int(share * shape.num_blocks + 1e-9)),
    )


class StaticPartition:
    """One engine in fixed parts, by rank."""

    def __init__(self, setup: PolicySetup) -> None:
        parts = [part_of(setup.shape, share) for share in shares(setup.knobs, setup.tiers)]
        for name in ("max_num_seqs", "max_num_batched_tokens", "num_blocks"):
            if sum(getattr(part, name) for part in parts) > getattr(setup.shape, name):
                raise ConfigError("policy", f"{name} is too small to be divided between the tiers")
        self._parts = [new_fcfs(replace(setup, shape=part)) for part in parts]
        self._shapes = parts
        self._budget = setup.shape.max_num_batched_tokens
        self._num_blocks = setup.shape.num_blocks
        self._ranks: dict[str, int] = {}

    def add(self, request: SimRequest, now: float) -> None:
        """See `StepScheduler`. Raises ConfigError for a request larger than its tier's blocks."""
        shape = self._shapes[request.rank]
        num_tokens = request.num_prompt_tokens + request.num_output_tokens
        if num_tokens > shape.num_blocks * shape.block_size:
            room = f"{shape.num_blocks} blocks of {shape.block_size}"
            raise ConfigError("policy", f"a request of {num_tokens} tokens never fits into {room}")
        self._ranks[request.request_id] = request.rank
        self._parts[request.rank].add(request, now)

    def abort(self, request_id: str) -> None:
        """See `StepScheduler`."""
        rank = self._ranks.pop(request_id, None)
        if rank is not None:
            self._parts[rank].abort(request_id)

    def num_preemptions(self, request_id: str) -> int:
        """See `StepScheduler`."""
        return self._parts[self._ranks[request_id]].num_preemptions(request_id)

    def plan(self, now: float) -> SimStep | None:
        """See `StepScheduler`. The parts compute in one step."""
        steps = [part.plan(now) for part in self._parts]
        planned = [step for step in steps if step is not None]
        if not planned:
            return None
        return SimStep(
            reduce(StepFeatures.plus, (step.features for step in planned)),
            tuple(sum(tokens) for tokens in zip(*(s.num_tokens for s in planned), strict=True)),
            steps,
            self._budget,
        )

    def done(self, step: SimStep, now: float, step_s: float) -> Seq[Emission]:
        """See `StepScheduler`."""
        steps = cast("list[SimStep | None]", step.token)
        emissions: list[Emission] = []
        for part, own in zip(self._parts, steps, strict=True):
            if own is not None:
                emissions += part.done(own, now, step_s)
        for emission in emissions:
            if emission.finished:
                del self._ranks[emission.request_id]
        return emissions

    def stats(self) -> SchedulerStats:
        """See `StepScheduler`."""
        each = [part.stats() for part in self._parts]
        used = sum(s.kv_used * p.num_blocks for s, p in zip(each, self._shapes, strict=True))
        return SchedulerStats(
            running=tuple(s.running[rank] for rank, s in enumerate(each)),
            waiting=tuple(s.waiting[rank] for rank, s in enumerate(each)),
            kv_used=used / self._num_blocks,
            num_preemptions=sum(s.num_preemptions for s in each),
            num_recomputed_tokens=sum(s.num_recomputed_tokens for s in each),
            num_parked=sum(s.num_parked for s in each),
        )

    def check_integrity(self) -> None:
        """See `StepScheduler`."""
        for part in self._parts:
            part.check_integrity()
        stats = self.stats()
        assert sum(stats.running) + sum(stats.waiting) == len(self._ranks), "somebody is nowhere"
