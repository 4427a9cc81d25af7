"""How fast does the backlog drain?

Service per second, measured only while requests wait: what is served while nobody waits says how
much was asked for, not how much can be given.
"""

from headway.core.rates import Moments, MovingRate

MEMORY_S = 30.0
"""Time constant of forgetting, in seconds of saturation."""
MIN_SAMPLES = 3


class DrainRate:
    """A moving rate of settled cost per second of saturation, and what one request takes."""

    def __init__(self) -> None:
        self._rate = MovingRate(MEMORY_S)
        self._costs = Moments()
        self._gaps = Moments()
        self._pace = Moments()
        self._since: float | None = None

    def settle(self, cost: float, service_s: float, now: float, *, saturated: bool) -> None:
        """Count a request of `cost` that took `service_s`; `saturated`: others wait at its end.

        For the rate it counts when others were waiting at the end before this one too, for then all
        capacity was in use in between.
        """
        if cost > 0:
            self._costs.add(cost)
            self._pace.add(service_s / cost)
        if self._since is not None:
            elapsed_s = max(0.0, now - self._since)
            self._rate.add(cost, elapsed_s)
            self._gaps.add(elapsed_s)
        self._since = now if saturated else None

    @property
    def rate(self) -> float | None:
        """Cost per second, or None while too little has been seen."""
        rate = self._rate.after()
        return rate if self._rate.samples >= MIN_SAMPLES and rate > 0 else None

    @property
    def mean_cost(self) -> float:
        """Mean cost of a finished request; 0 before the first."""
        return self._costs.mean

    @property
    def relative_variance(self) -> float:
        """By how much one request varies: in its cost, and in the time until a place is free."""
        return self._costs.relative_variance + self._gaps.relative_variance

    def service_s(self, cost: float) -> float:
        """Return how long a request of `cost` takes from its dispatch to its end."""
        return self._pace.mean * cost
