"""How many slots and blocks are kept free for the most urgent tier?

As many as its arrivals are likely to ask for before lower tiers could have given them back by
themselves. Keeping more wastes them; keeping less costs the work of whoever is preempted.
"""

from math import ceil, sqrt

from headway.core.rates import Moments

SIGMAS = 2.33
"""Demand stays below its mean and so many deviations in 99 of 100 windows, were it normal."""
LEAST_SHARE = 0.02
WINDOWS_TO_LEARN = 20


class DemandReserve:
    """The reserve of one tier, sized from what its requests asked for per window of `window_s`.

    Never below `LEAST_SHARE` of `totals`, never above `ceilings`; these until `WINDOWS_TO_LEARN`
    windows have passed, with requests or without. All are (slots, blocks).
    """

    def __init__(self, totals: tuple[int, int], ceilings: tuple[int, int], window_s: float) -> None:
        self._least = [ceil(LEAST_SHARE * total) for total in totals]
        self._ceilings = ceilings
        self._window_s = window_s
        self._until: float | None = None
        self._asked = [0, 0]
        """For how much in the window under way."""
        self._per_window = (Moments(), Moments())

    def note(self, num_slots: int, num_blocks: int, now: float) -> None:
        """Count what a request that arrived `now` will hold."""
        self._advance(now)
        self._asked[0] += num_slots
        self._asked[1] += num_blocks

    def size(self, now: float) -> tuple[int, int]:
        """Return the slots and blocks to keep free beside those that the tier holds."""
        self._advance(now)
        slots, blocks = self._per_window
        if slots.count < WINDOWS_TO_LEARN:
            return self._ceilings
        return self._reserve(0, slots), self._reserve(1, blocks)

    def _reserve(self, index: int, demand: Moments) -> int:
        likely = ceil(demand.mean + SIGMAS * sqrt(demand.variance))
        return min(self._ceilings[index], max(self._least[index], likely))

    def _advance(self, now: float) -> None:
        """End the windows that are over; after a long lull only as many as still matter."""
        if self._until is None:
            self._until = now + self._window_s
        num_over = int((now - self._until) / self._window_s) + 1 if now >= self._until else 0
        for _ in range(min(num_over, 500)):
            for demand, asked in zip(self._per_window, self._asked, strict=True):
                demand.add(asked)
            self._asked = [0, 0]
        self._until += num_over * self._window_s


def kept_free(unused: list[int], demand: int | None) -> int:
    """Return what is kept free of the reserves, by rank; of the first no more than the demand."""
    if unused and demand is not None:
        unused[0] = min(unused[0], demand)
    return sum(max(0, left) for left in unused)
