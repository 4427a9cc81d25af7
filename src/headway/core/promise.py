"""What can each tier be promised on this machine?

The configured targets are those of a fast machine. Where the tightest of them would leave steps so
short that reading the weights is most of them, all are stretched by one factor.
"""

from collections.abc import Collection
from dataclasses import astuple, replace
from math import inf

from headway.core.predictor import StepTimePredictor
from headway.core.step import TierLimits
from headway.core.tier import LatencyTarget, Tiers

TTFT_SHARE = 0.1
"""Share of a TTFT target that an arrival may spend waiting for the step under way."""
TYPICAL_CONTEXT = 512
"""Tokens that the only decode of the shortest step attends to."""
NOTICEABLE = 0.05
"""Change of a step's time, as a share, that promises follow."""


def efficient_s(shortest_s: float, longest_s: float, efficiency: float) -> float:
    """Return how long a step must be to do this share of a full step's tokens per second.

    Of its time all but the shortest step's is work that grows with the batch.
    """
    full = max(0.0, 1.0 - shortest_s / longest_s) if longest_s > 0 else 0.0
    return shortest_s / (1.0 - efficiency * full)


class Pace:
    """How fast the machine is at present, by what its steps taught the predictor.

    Where other load has slowed it down, promises follow: steps as short as those of the quiet
    machine would only use badly what is left of it.
    """

    def __init__(self, predictor: StepTimePredictor, max_num_batched_tokens: int) -> None:
        self._predictor = predictor
        self._max_num_batched_tokens = max_num_batched_tokens
        self._times_s = self._extremes()

    def _extremes(self) -> tuple[float, float]:
        time_s = self._predictor.coefficients
        shortest_s = time_s.base_s + time_s.slice_s(1, TYPICAL_CONTEXT)
        longest_s = time_s.base_s + time_s.slice_s(self._max_num_batched_tokens, 0)
        return shortest_s, max(shortest_s, longest_s)

    def follow(self) -> bool:
        """Take the present pace, if it has changed noticeably; return whether it has."""
        present_s = self._extremes()
        both = zip(self._times_s, present_s, strict=True)
        changed = any(abs(now - before) > NOTICEABLE * before for before, now in both)
        if changed:
            self._times_s = present_s
        return changed

    def efficient_s(self, efficiency: float) -> float:
        """Return how long a step must be to do this share of a full step's tokens per second."""
        return efficient_s(*self._times_s, efficiency)


def tier_limits(
    tiers: Tiers,
    shortest_s: float | None,
    *,
    max_num_seqs: int,
    num_blocks: int,
    ttft_share: float = TTFT_SHARE,
) -> tuple[TierLimits, ...]:
    """Return by rank what each tier may claim of an engine's slots and blocks, and is promised.

    The tightest target must leave steps of `shortest_s`; None: nobody is promised anything.
    `ttft_share` of a TTFT target may go into waiting for the step under way.
    """
    tightest = min((t.target.tpot_s for t in tiers.all if t.target.tpot_s is not None), default=inf)
    stretch = None if shortest_s is None else max(1.0, shortest_s / tightest)
    targets = [LatencyTarget() if stretch is None else _times(t.target, stretch) for t in tiers.all]
    return tuple(
        TierLimits(
            floor=tier.floor,
            reserved_slots=int(tier.reserve * max_num_seqs),
            reserved_blocks=int(tier.reserve * num_blocks),
            preemptible=tier.preemptible,
            target=target,
            recent_s=inf if target.ttft_s is None else ttft_share * target.ttft_s,
        )
        for tier, target in zip(tiers.all, targets, strict=True)
    )


def _times(target: LatencyTarget, factor: float) -> LatencyTarget:
    return LatencyTarget(*(None if s is None else s * factor for s in astuple(target)))


def without_idle_reserves(
    tiers: tuple[TierLimits, ...], recent: Collection[int]
) -> tuple[TierLimits, ...]:
    """Return the limits with nothing kept free for tiers of which no request came for a while.

    The first that comes again may have to preempt; those after it find their reserve.
    """
    return tuple(
        tier if rank in recent else replace(tier, reserved_slots=0, reserved_blocks=0)
        for rank, tier in enumerate(tiers)
    )
