"""How honest were earlier estimates of a wait, and what does that make of the next one?

Each estimate is corrected by what became of others, so that in the long run half of the waits are
within the p50 and nine in ten within the p90, whatever the model (`wait.py`) leaves out.
"""

from bisect import bisect_left
from math import exp
from struct import Struct

from headway.core.rates import MovingRate
from headway.core.wait import Model, WaitEstimate

ARRIVALS_MEMORY_S, BURST_MEMORY_S = 120.0, 15.0
"""Time constants in which arrivals are averaged: a burst will end, but nobody knows when."""
NO_WAIT = WaitEstimate(0.0, 0.0)
STEP, FIRST_STEP = 0.02, 0.4
"""How far one outcome moves a correction, as a share of it, at most; the first ones go further."""
ALL_OPEN = 0.75
"""How far all that wait together move it: what they meet has much in common, and those who come now
will meet something else by the time that they are served."""
MAX_LOG_CORRECTION = 4.0
P90 = 0.9
BEYOND_STEP = 0.2
"""How far the share below moves at an outcome, in multiples of the step."""
MIN_BEYOND, MAX_BEYOND = 0.01, 0.2
"""Between these the share of waits allowed beyond the p90 is set, so that it comes out at 0.1."""


class _Correction:
    """Corrections of one kind of wait, as logarithms that follow quantiles of what happened."""

    def __init__(self) -> None:
        self._bias = self._spread = 0.0
        self._factor = self._widening = 1.0
        self._beyond = 1 - P90
        self._count = 0
        self.num_open = 0
        """How many estimates have not met their outcome."""
        self._num_told = 0
        self._peaks: list[tuple[int, int]] = []
        """After which estimate how many were open, where no later one found as many."""

    def apply(self, model: Model) -> WaitEstimate:
        """Return the corrected estimate."""
        mean_s, spread, floor_mean_s, floor_spread = model
        p50_s = mean_s if mean_s < floor_mean_s else floor_mean_s
        p90_s = mean_s * (1 + self._widening * spread)
        by_floor_s = floor_mean_s * (1 + self._widening * floor_spread)
        p90_s = p90_s if p90_s < by_floor_s else by_floor_s
        return WaitEstimate(self._factor * p50_s, self._factor * p90_s)

    def tell(self) -> int:
        """Count an estimate; return its number. Amortised O(1)."""
        if self.num_open == 0:
            self._peaks.clear()
        self.num_open += 1
        self._num_told += 1
        while self._peaks and self._peaks[-1][1] <= self.num_open:
            self._peaks.pop()
        self._peaks.append((self._num_told, self.num_open))
        return self._num_told

    def most_open_since(self, number: int) -> int:
        """Return how many were open at once, at most, since an estimate that still is."""
        return self._peaks[bisect_left(self._peaks, (number, 0))][1]

    def learn(self, model: Model, wait_s: float, *, kept: bool, num_together: int) -> None:
        """Compare a wait with what would be told today, and move towards it.

        `num_together`: how many waited at once, at most, during this wait.

        Today, not when it was told: what was told has been corrected by others since, and moving
        for each of a thousand that waited together would overshoot a thousandfold. Where loads
        swing, today's correction fits yesterday's waits better than tomorrow's; hence the share
        that may lie beyond follows, slowly, from whether what was told was `kept` (adaptive
        conformal inference, Gibbs and Candès 2021).
        """
        told = self.apply(model)
        step = min(STEP, ALL_OPEN / num_together)
        self._beyond += BEYOND_STEP * step * (kept - P90)
        self._beyond = min(max(self._beyond, MIN_BEYOND), MAX_BEYOND)
        step = max(step, FIRST_STEP / (1 + self._count))
        self._count += 1
        self._bias = _clamp(self._bias + step * (0.5 if wait_s > told.p50_s else -0.5))
        missed = 1.0 if wait_s > told.p90_s else 0.0
        self._spread = _clamp(self._spread + step * (missed - self._beyond))
        self._factor, self._widening = exp(self._bias), exp(self._spread)


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


_TOLD = Struct("q?q6d")
"""Rank, whether others of its flow waited, the number of its estimate, since when it waits, the p90
that it was told, and from what. One object in place of nine: those of who waits long are in no
cache."""


class WaitEstimator:
    """Estimates by tier, and their outcomes. Memory: one entry per waiting request.

    Those who are the first of their flow are corrected apart: what a wait behind hundreds of one's
    own requests turns out to be says nothing about theirs.
    """

    def __init__(self, num_ranks: int) -> None:
        self.counts = WaitCounts(num_ranks)
        self._corrections = [(_Correction(), _Correction()) for _ in range(num_ranks)]
        self._arrivals = [
            (MovingRate(ARRIVALS_MEMORY_S), MovingRate(BURST_MEMORY_S)) for _ in range(num_ranks)
        ]
        self._last_arrival = [0.0] * num_ranks
        self._told: dict[str, bytes] = {}

    def arrived(self, rank: int, cost: float, now: float) -> None:
        """Count a request that joined the queue."""
        for rate in self._arrivals[rank]:
            rate.add(cost, max(0.0, now - self._last_arrival[rank]) if rate.samples else 0.0)
        self._last_arrival[rank] = now

    def arrivals_above(self, rank: int, now: float) -> float:
        """Return the cost per second that arrives in tiers more urgent than `rank`."""
        cost_per_s = 0.0
        for (lasting, burst), last in zip(self._arrivals[:rank], self._last_arrival, strict=False):
            idle_s = max(0.0, now - last)
            cost_per_s += max(lasting.after(idle_s), burst.after(idle_s))
        return cost_per_s

    def estimate(self, rank: int, model: Model, *, behind: bool = False) -> WaitEstimate:
        """Return what to tell; `behind`: others of its flow wait."""
        return self._corrections[rank][behind].apply(model)

    def tell(
        self,
        request_id: str,
        rank: int,
        model: Model,
        p90_s: float,
        now: float,
        *,
        behind: bool = False,
    ) -> None:
        """Keep what a request was told until its wait is over."""
        number = self._corrections[rank][behind].tell()
        self._told[request_id] = _TOLD.pack(rank, behind, number, now, p90_s, *model)

    def served(self, request_id: str, now: float) -> None:
        """The wait is over: the request leaves for a node."""
        self._end(request_id, now, judge_early=True)

    def left(self, request_id: str, now: float) -> None:
        """The request leaves unserved, or for another tier."""
        self._end(request_id, now, judge_early=False)

    def _end(self, request_id: str, now: float, *, judge_early: bool) -> None:
        told = self._told.pop(request_id, None)
        if told is None:
            return
        rank, behind, number, since, p90_s, *model = _TOLD.unpack(told)
        correction, kept = self._corrections[rank][behind], now - since <= p90_s
        correction.num_open -= 1
        if judge_early or not kept:
            together = correction.most_open_since(number)
            self.counts.judged[rank] += 1
            self.counts.within_p90[rank] += kept
            correction.learn(model, now - since, kept=kept, num_together=together)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        num_open = sum(each.num_open for pair in self._corrections for each in pair)
        assert num_open == len(self._told), "an estimate is lost"
