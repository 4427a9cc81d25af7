"""How is it lately, and does more of one bring more of the other?"""

NEWEST_SHARE = 0.25
MEMORY = 30
"""Windows over which two series are compared."""
LEAST_SPREAD = 0.03
"""Relative spread of the first below which the comparison says nothing."""


class RecentMean:
    """The mean of the last few values; None before the first."""

    def __init__(self) -> None:
        self.mean: float | None = None
        self._seen = 0

    def add(self, value: float) -> None:
        """Count a value."""
        self._seen += 1
        mean = 0.0 if self.mean is None else self.mean
        self.mean = mean + max(1 / self._seen, NEWEST_SHARE) * (value - mean)

    def forget(self) -> None:
        """What was seen is no longer how it is."""
        self.mean, self._seen = None, 0


class Trend:
    """Moving means and moments of two series."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """What was seen is no longer how it is."""
        self._seen = 0
        self._x = self._y = self._variance = self._covariance = 0.0

    def add(self, x: float, y: float) -> None:
        """Count a pair."""
        self._seen += 1
        share = max(1 / self._seen, 2 / (MEMORY + 1))
        off_x, off_y = x - self._x, y - self._y
        self._x += share * off_x
        self._y += share * off_y
        self._variance = (1 - share) * (self._variance + share * off_x * off_x)
        self._covariance = (1 - share) * (self._covariance + share * off_x * off_y)

    @property
    def gain(self) -> float | None:
        """Relative gain of y per relative gain of x: 1 is in proportion, 0 or less is in vain.

        None while too little was seen, or x hardly moved.
        """
        if self._seen < MEMORY // 2 or self._variance <= (LEAST_SPREAD * self._x) ** 2:
            return None
        return self._covariance / self._variance * self._x / self._y if self._y > 0 else 0.0
