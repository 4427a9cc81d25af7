"""How many slots and blocks are kept free for the most urgent tier?

As many as its arrivals are likely to ask for before lower tiers could have given them back by
themselves. Keeping more wastes them; keeping less costs the work of whoever is preempted.
"""

from math import ceil, sqrt

SIGMAS = 2.33
"""Demand stays below its mean and so many deviations in 99 of 100 windows, were it normal."""
LEAST_SHARE = 0.02
NEWEST_SHARE = 0.02
"""What the newest window weighs: half of what is known is from the last 35."""
WINDOWS_TO_LEARN = 20


class _Demand:
    """Mean and variance of a quantity per window, newer ones weighing more."""

    def __init__(self, total: int, ceiling: int) -> None:
        self.now = 0.0
        self._mean = 0.0
        self._variance = 0.0
        self._least, self._ceiling = ceil(LEAST_SHARE * total), ceiling

    def end_window(self, share: float) -> None:
        off = self.now - self._mean
        self._mean += share * off
        self._variance = (1 - share) * (self._variance + share * off * off)
        self.now = 0.0

    def reserve(self) -> int:
        most = ceil(self._mean + SIGMAS * sqrt(self._variance))
        return min(self._ceiling, max(self._least, most))


class DemandReserve:
    """The reserve of one tier, sized from what its requests asked for per window of `window_s`.

    Never below `LEAST_SHARE` of `totals`, never above `ceilings`; these until `WINDOWS_TO_LEARN`
    windows have passed, with requests or without. All are (slots, blocks).
    """

    def __init__(self, totals: tuple[int, int], ceilings: tuple[int, int], window_s: float) -> None:
        self._ceilings = ceilings
        self._window_s = window_s
        self._slots, self._blocks = map(_Demand, totals, ceilings)
        self._until: float | None = None
        self._num_windows = 0

    def note(self, num_slots: int, num_blocks: int, now: float) -> None:
        """Count what a request that arrived `now` will hold."""
        self._advance(now)
        self._slots.now += num_slots
        self._blocks.now += num_blocks

    def size(self, now: float) -> tuple[int, int]:
        """Return the slots and blocks to keep free beside those that the tier holds."""
        self._advance(now)
        if self._num_windows < WINDOWS_TO_LEARN:
            return self._ceilings
        return self._slots.reserve(), self._blocks.reserve()

    def _advance(self, now: float) -> None:
        """End the windows that are over; after a long lull only as many as still matter."""
        if self._until is None:
            self._until = now + self._window_s
        num_over = int((now - self._until) / self._window_s) + 1 if now >= self._until else 0
        for _ in range(min(num_over, 500)):
            self._num_windows += 1
            share = max(NEWEST_SHARE, 1 / self._num_windows)
            self._slots.end_window(share)
            self._blocks.end_window(share)
        self._until += num_over * self._window_s
