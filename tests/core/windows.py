"""What is the worst window of a run of service? All windows at once, by the extremes so far.

A bound on every window from step i to step j is a bound on the difference of two prefixes, so one
pass finds the worst (`algorithms.md` §4, B1 and B2).
"""

from collections.abc import Iterable


class Rise:
    """A running sum, and the most that it rose and fell between any two moments."""

    def __init__(self) -> None:
        self.restart()
        self.most = self.most_fallen = 0.0

    def restart(self) -> None:
        """No window reaches back beyond this moment."""
        self._sum = self._lowest = self._highest = 0.0

    def add(self, amount: float) -> None:
        """Go on by one step."""
        self._sum += amount
        self._lowest = min(self._lowest, self._sum)
        self._highest = max(self._highest, self._sum)
        self.most = max(self.most, self._sum - self._lowest)
        self.most_fallen = max(self.most_fallen, self._highest - self._sum)

    @property
    def widest(self) -> float:
        """The most that it changed, in either direction."""
        return max(self.most, self.most_fallen)


def shortfall(floor: float, served: Iterable[tuple[float, float]]) -> float:
    """Return the most that floor * total exceeds the own service in any window of `served`.

    `served` holds (total, own) of each step.
    """
    debt = Rise()
    for total, own in served:
        debt.add(floor * total - own)
    return debt.most
