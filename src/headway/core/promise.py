"""What can each tier be promised on this machine?

The configured targets are those of a fast machine. Where the tightest of them would leave steps so
short that reading the weights is most of them, all are stretched by one factor.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from headway.core.predictor import StepTimePredictor
from headway.core.step import TierLimits
from headway.core.tier import LatencyTarget, Tier, Tiers

TTFT_SHARE = 0.1
"""Share of a TTFT target that an arrival may spend waiting for the step under way."""
TYPICAL_CONTEXT = 512
"""Tokens that the only decode of the shortest step attends to."""
NOTICEABLE = 0.05
"""Change of a step's time, as a share, that promises follow."""


@dataclass(frozen=True, slots=True)
class TierPromise:
    """What one tier can be promised."""

    target: LatencyTarget = field(default_factory=LatencyTarget)
    recent_s: float = inf
    """Longest step while a request of it may arrive; infinite without a TTFT target."""


def efficient_s(shortest_s: float, longest_s: float, efficiency: float) -> float:
    """Return how long a step must be to do this share of a full step's tokens per second.

    Of its time all but the shortest step's is work that grows with the batch.
    """
    full = max(0.0, 1.0 - shortest_s / longest_s)
    return shortest_s / (1.0 - efficiency * full)


class Pace:
    """How fast the machine is at present, by what its steps taught the predictor.

    Where other load has slowed it down, promises follow: steps as short as those of the quiet
    machine would only use badly what is left of it.
    """

    def __init__(self, predictor: StepTimePredictor, max_num_batched_tokens: int) -> None:
        self._predictor = predictor
        self._max_num_batched_tokens = max_num_batched_tokens
        self._shortest_s, self._longest_s = self._extremes()

    def _extremes(self) -> tuple[float, float]:
        time_s = self._predictor.coefficients
        shortest_s = time_s.base_s + time_s.slice_s(1, TYPICAL_CONTEXT)
        longest_s = time_s.base_s + time_s.slice_s(self._max_num_batched_tokens, 0)
        return shortest_s, max(shortest_s, longest_s)

    def follow(self) -> bool:
        """Take the present pace, if it has changed noticeably; return whether it has."""
        shortest_s, longest_s = self._extremes()
        changed = (
            abs(shortest_s - self._shortest_s) > NOTICEABLE * self._shortest_s
            or abs(longest_s - self._longest_s) > NOTICEABLE * self._longest_s
        )
        if changed:
            self._shortest_s, self._longest_s = shortest_s, longest_s
        return changed

    def efficient_s(self, efficiency: float) -> float:
        """Return how long a step must be to do this share of a full step's tokens per second."""
        return efficient_s(self._shortest_s, self._longest_s, efficiency)


def tier_promises(
    shortest_s: float, tiers: Tiers, ttft_share: float = TTFT_SHARE
) -> tuple[TierPromise, ...]:
    """Return by rank what can be promised when the tightest target must leave steps this long.

    `ttft_share` of a TTFT target may go into waiting for the step under way.
    """
    tightest = min((t.target.tpot_s for t in tiers.all if t.target.tpot_s is not None), default=inf)
    stretch = max(1.0, shortest_s / tightest)
    return tuple(_promise(tier.target, stretch, ttft_share) for tier in tiers.all)


def _promise(target: LatencyTarget, stretch: float, ttft_share: float) -> TierPromise:
    stretched = LatencyTarget(
        ttft_s=None if target.ttft_s is None else target.ttft_s * stretch,
        tpot_s=None if target.tpot_s is None else target.tpot_s * stretch,
        gap_s=None if target.gap_s is None else target.gap_s * stretch,
    )
    recent_s = inf if stretched.ttft_s is None else ttft_share * stretched.ttft_s
    return TierPromise(stretched, recent_s)


def tier_limits(
    tiers: Sequence[Tier], promises: Sequence[TierPromise], *, max_num_seqs: int, num_blocks: int
) -> tuple[TierLimits, ...]:
    """Return what the tiers may claim of an engine's slots and blocks, and are promised."""
    return tuple(
        TierLimits(
            floor=tier.floor,
            reserved_slots=int(tier.reserve * max_num_seqs),
            reserved_blocks=int(tier.reserve * num_blocks),
            preemptible=tier.preemptible,
            target=promise.target,
            recent_s=promise.recent_s,
        )
        for tier, promise in zip(tiers, promises, strict=True)
    )


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
