"""How fast does the backlog drain?

Service per second, measured only while requests wait: what is served while nobody waits says how
much was asked for, not how much can be given.
"""

from math import inf

from headway.core.rates import Moments, MovingRate

MEMORY_S = 30.0
"""Time constant of forgetting, in seconds of saturation."""
MIN_SAMPLES = 3
SMALLEST = 1e-9
"""Costs and rates below this are none: a token costs far more, and their squares and quotients
would leave the range of floats."""


class DrainRate:
    """A moving rate of settled cost per second of saturation, and what one request takes."""

    def __init__(self) -> None:
        self._rate = MovingRate(MEMORY_S)
        self._costs = Moments()
        self._gaps = Moments()
        self._pace = Moments()
        self._since: float | None = None
        self._filled: float | None = None
        self.rate: float | None = None
        """Cost per second; None while too little has been seen."""
        self.relative_variance = 0.0
        """By how much one request varies: in its cost, and in the time until a place is free."""
        self.mean_cost = 0.0
        """Mean cost of a finished request; 0 before the first."""

    def filled(self, now: float) -> None:
        """Note that a request begins to wait and no other does."""
        self._filled = now

    def settle(
        self, cost: float, service_s: float, now: float, *, saturated: bool, known: bool = True
    ) -> None:
        """Count a request of `cost` that took `service_s`; `saturated`: others wait at its end.

        Where the cost is not `known`, it is at most the one given, and at the pace of the others
        what its time allowed; else those who leave early would slow down the rate.

        For the rate it counts over the time since the end before this one when others were waiting
        at that, for then all capacity was in use in between; otherwise since others began to wait,
        if they still do. Without that a batch of ends would count over the moments between them,
        and not over the time that it took.
        """
        if not known:
            cost = min(cost, service_s / self._pace.mean) if self._pace.mean > 0 else 0.0
        cost = cost if cost >= SMALLEST else 0.0
        if known and cost > 0:
            self._costs.add(cost)
            self.mean_cost = self._costs.mean
            self._pace.add(service_s / cost)
        since, most_s = self._since, inf
        if since is None and saturated:
            # Capacity that nobody used meanwhile says nothing; what has ended used it.
            since, most_s = self._filled, service_s
        if since is not None:
            elapsed_s = min(most_s, max(0.0, now - since))
            rate = self._rate.add(cost, elapsed_s)
            self._gaps.add(elapsed_s)
            self.rate = rate if self._rate.samples >= MIN_SAMPLES and rate >= SMALLEST else None
        self._since = now if saturated else None
        self.relative_variance = self._costs.relative_variance + self._gaps.relative_variance

    def service_s(self, cost: float) -> float:
        """Return how long a request of `cost` takes from its dispatch to its end."""
        return self._pace.mean * cost
