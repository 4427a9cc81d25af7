"""How honest were earlier estimates of a wait, and what does that make of the next one?

Each estimate is corrected by what became of others, so that in the long run half of the waits are
within the p50 and nine in ten within the p90, whatever the model (`wait.py`) leaves out.
"""

from itertools import chain
from math import exp, inf

from headway.core.rates import MovingRate
from headway.core.wait import Model, WaitEstimate

ARRIVALS_MEMORY_S = 120.0
"""Time constant in which arrivals are averaged: longer than a burst, for it will end."""
NO_WAIT = WaitEstimate(0.0, 0.0)
STEP = 0.015
"""How far one outcome moves a correction, as a share of it; the first ones move it further."""
FIRST_STEP = 0.4
MAX_LOG_CORRECTION = 4.0
P90 = 0.9
BEYOND_STEP = 0.002
MIN_BEYOND, MAX_BEYOND = 0.01, 0.2
"""Between these the share of waits allowed beyond the p90 is set, so that it comes out at 0.1."""


class _Correction:
    """One tier's corrections, as logarithms, each following a quantile of what happened."""

    def __init__(self) -> None:
        self._bias = self._spread = 0.0
        self._factor = self._widening = 1.0
        self._beyond = 1 - P90
        self._count = 0

    def apply(self, model: Model) -> WaitEstimate:
        """Return the corrected estimate."""
        p50_s = p90_s = inf
        for mean_s, one_spread in model:
            p50_s = min(p50_s, mean_s)
            p90_s = min(p90_s, mean_s * (1 + self._widening * one_spread))
        return WaitEstimate(self._factor * p50_s, self._factor * p90_s)

    def learn(self, model: Model, wait_s: float, *, kept: bool) -> None:
        """Compare a wait with what would be told today, and move towards it.

        Today, not when it was told: what was told has been corrected by others since, and moving
        for each of a thousand that waited together would overshoot a thousandfold. Where loads
        swing, today's correction fits yesterday's waits better than tomorrow's; hence the share
        that may lie beyond follows, slowly, from whether what was told was `kept` (adaptive
        conformal inference, Gibbs and Candès 2021).
        """
        told = self.apply(model)
        step = max(STEP, FIRST_STEP / (1 + self._count))
        self._count += 1
        self._bias = _clamp(self._bias + step * (0.5 if wait_s > told.p50_s else -0.5))
        missed = 1.0 if wait_s > told.p90_s else 0.0
        self._spread = _clamp(self._spread + step * (missed - self._beyond))
        self._factor, self._widening = exp(self._bias), exp(self._spread)
        self._beyond += BEYOND_STEP * (kept - P90)
        self._beyond = min(max(self._beyond, MIN_BEYOND), MAX_BEYOND)


def _clamp(log_correction: float) -> float:
    return min(max(log_correction, -MAX_LOG_CORRECTION), MAX_LOG_CORRECTION)


class WaitCounts:
    """How many waits are over and could be judged, and how many of them kept to the p90; by rank.

    Judged are those dispatched, and those that left unserved later than their p90. Of one that left
    sooner nobody knows how long it would have waited (a censored observation).
    """

    def __init__(self, num_ranks: int) -> None:
        self.judged = [0] * num_ranks
        self.within_p90 = [0] * num_ranks


_Told = tuple[int, float, float, *tuple[float, ...]]
"""Rank, since when it waits, the p90 that it was told, and the model's numbers: one tuple of them
for each waiting request, so that the garbage collector has the less to visit."""


class WaitEstimator:
    """Estimates by tier, and their outcomes. Memory: one entry per waiting request."""

    def __init__(self, num_ranks: int) -> None:
        self.counts = WaitCounts(num_ranks)
        self._corrections = [_Correction() for _ in range(num_ranks)]
        self._arrivals = [MovingRate(ARRIVALS_MEMORY_S) for _ in range(num_ranks)]
        self._last_arrival = [0.0] * num_ranks
        self._told: dict[str, _Told] = {}

    def __len__(self) -> int:
        """Return how many estimates have not met their outcome."""
        return len(self._told)

    def arrived(self, rank: int, cost: float, now: float) -> None:
        """Count a request that joined the queue."""
        elapsed_s = now - self._last_arrival[rank] if self._arrivals[rank].samples else 0.0
        self._arrivals[rank].add(cost, max(0.0, elapsed_s))
        self._last_arrival[rank] = now

    def arrivals_above(self, rank: int, now: float) -> float:
        """Return the cost per second that arrives in tiers more urgent than `rank`."""
        cost_per_s = 0.0
        for above in range(rank):
            cost_per_s += self._arrivals[above].after(max(0.0, now - self._last_arrival[above]))
        return cost_per_s

    def estimate(self, rank: int, model: Model) -> WaitEstimate:
        """Return what to tell."""
        return self._corrections[rank].apply(model)

    def tell(self, request_id: str, rank: int, model: Model, p90_s: float, now: float) -> None:
        """Keep what a request was told until its wait is over."""
        self._told[request_id] = (rank, now, p90_s, *chain.from_iterable(model))

    def served(self, request_id: str, now: float) -> None:
        """The wait is over: the request leaves for a node."""
        told = self._told.pop(request_id, None)
        if told is not None:
            self._judge(told, now)

    def left(self, request_id: str, now: float) -> None:
        """The request leaves unserved, or for another tier."""
        told = self._told.pop(request_id, None)
        if told is not None and now - told[1] > told[2]:
            self._judge(told, now)

    def _judge(self, told: _Told, now: float) -> None:
        rank, since, p90_s = told[:3]
        numbers = told[3:]
        model = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        kept = now - since <= p90_s
        self.counts.judged[rank] += 1
        self.counts.within_p90[rank] += kept
        self._corrections[rank].learn(model, now - since, kept=kept)
