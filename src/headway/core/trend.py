"""How is it lately, and does more of one bring more of the other?"""

from math import sqrt

MOST_SEEN = 50
"""Values that a mean is over, at most."""
MEMORY = 30
"""Windows over which two series are compared."""
LEAST_SPREAD = 0.03
"""Relative spread of the first below which the comparison says nothing."""


class RecentMean:
    """The mean of the last values; 0 before the first."""

    def __init__(self) -> None:
        self.mean = 0.0
        self.num_seen = 0

    def add(self, value: float) -> None:
        """Count a value."""
        self.num_seen = min(self.num_seen + 1, MOST_SEEN)
        self.mean += (value - self.mean) / self.num_seen

    def fade(self, most: int) -> None:
        """Let what was seen weigh no more than so many values, for it will soon be different."""
        self.num_seen = min(self.num_seen, most)

    def forget(self) -> None:
        """What was seen is no longer how it is."""
        self.mean, self.num_seen = 0.0, 0


class Trend:
    """Moving means and moments of two series."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """What was seen is no longer how it is."""
        self._seen = 0
        self._x = self._y = 0.0
        self._xx = self._xy = self._yy = 0.0

    def add(self, x: float, y: float) -> None:
        """Count a pair."""
        self._seen += 1
        share = max(1 / self._seen, 2 / (MEMORY + 1))
        off_x, off_y = x - self._x, y - self._y
        self._x += share * off_x
        self._y += share * off_y
        self._xx = (1 - share) * (self._xx + share * off_x * off_x)
        self._xy = (1 - share) * (self._xy + share * off_x * off_y)
        self._yy = (1 - share) * (self._yy + share * off_y * off_y)

    @property
    def most_gain(self) -> float | None:
        """Relative gain of y per relative gain of x, at most: 1 is in proportion, 0 is in vain.

        The slope plus half its standard error. None while too little was seen, or x hardly moved.
        """
        if self._seen < MEMORY // 2 or self._xx <= (LEAST_SPREAD * self._x) ** 2 or self._y <= 0:
            return None
        slope = self._xy / self._xx
        unexplained = max(0.0, self._yy / self._xx - slope * slope)
        error = sqrt(unexplained / min(self._seen, MEMORY))
        return (slope + error / 2) * self._x / self._y
