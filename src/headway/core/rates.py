"""How much per second, and how much does it vary, lately?"""

from math import exp

LEAST_S = 1.0
"""Two amounts that came within less say nothing yet of how many will come."""
NEWEST_SHARE = 0.02
"""Weight of the newest value once fifty have been seen."""


class MovingRate:
    """Amount per second, forgetting with a time constant of `memory_s` seconds.

    A lull counts as no longer than that: what comes after it is soon seen.
    """

    def __init__(self, memory_s: float) -> None:
        self.samples = 0
        self._memory_s = memory_s
        self._amount = 0.0
        self._seconds = 0.0

    def add(self, amount: float, elapsed_s: float) -> float:
        """Count `amount` that came after `elapsed_s` seconds of nothing; return the rate."""
        keep = exp(-elapsed_s / self._memory_s)
        self._amount = self._amount * keep + amount
        self._seconds = seconds = self._seconds * keep + min(elapsed_s, self._memory_s)
        self.samples += 1
        return self._amount / seconds if seconds > 0 else 0.0

    def after(self, idle_s: float) -> float:
        """Return the rate if nothing has come for `idle_s` since; 0 until there are two amounts."""
        keep = exp(-idle_s / self._memory_s)
        seconds = self._seconds * keep + min(idle_s, self._memory_s)
        return self._amount * keep / max(LEAST_S, seconds) if self.samples > 1 else 0.0


class Moments:
    """Mean and variance; the first fifty values count alike, later ones a fiftieth."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.variance = 0.0

    def add(self, value: float) -> None:
        """Count a value that is not negative."""
        self.count += 1
        share = 1.0 / self.count if self.count < 1.0 / NEWEST_SHARE else NEWEST_SHARE
        off = value - self.mean
        self.mean += share * off
        self.variance = (1.0 - share) * (self.variance + share * off * off)

    @property
    def relative_variance(self) -> float:
        """Variance over the square of the mean; 0 while nothing has been seen."""
        return self.variance / self.mean**2 if self.mean > 0 else 0.0
