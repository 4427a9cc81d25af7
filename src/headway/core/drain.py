"""How fast does the backlog drain?

Service per second, measured only while requests wait: what is served while nobody waits says how
much was asked for, not how much can be given.
"""

from math import exp

MEMORY_S = 30.0
"""Time constant of forgetting, in seconds of saturation."""
MIN_SAMPLES = 3


class DrainRate:
    """A moving rate of settled cost per second of saturation."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._seconds = 0.0
        self._samples = 0
        self._since: float | None = None

    def settle(self, cost: float, now: float, *, saturated: bool) -> None:
        """Count a finished request of `cost`; `saturated`: others wait now, at its end.

        Counted when others were waiting at the end before this one too, for then all capacity was
        in use in between.
        """
        if self._since is not None:
            elapsed_s = max(0.0, now - self._since)
            keep = exp(-elapsed_s / MEMORY_S)
            self._cost = self._cost * keep + cost
            self._seconds = self._seconds * keep + elapsed_s
            self._samples += 1
        self._since = now if saturated else None

    @property
    def rate(self) -> float | None:
        """Cost per second, or None while too little has been seen."""
        if self._samples < MIN_SAMPLES or self._seconds <= 0 or self._cost <= 0:
            return None
        return self._cost / self._seconds
