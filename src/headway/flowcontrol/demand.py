"""What do the tiers ask of the nodes, and how many nodes does that take?

Keeps the sums that `core.replicas` decides on; each request changes them in constant time.
"""

from collections import defaultdict
from math import exp

from headway.core.backlog import QueuedRequest
from headway.core.replicas import Demand, ReplicaAdvisor, nodes_needed
from headway.core.tier import Tiers

RATE_MEMORY_S = 60.0
DEADLINE_STEP_S = 60.0
"""Deadlines within one such step count as its beginning."""


class DemandMeter:
    """Counts what waits and what was served. A tier with a TTFT target is promised a time."""

    def __init__(self, tiers: Tiers) -> None:
        self._urgent = [tier.target.ttft_s is not None for tier in tiers.all]
        self._num_waiting = 0
        self._waiting = 0.0
        self._served = 0.0
        self._served_at = self._first_at = 0.0
        self._deadlines = _Deadlines()

    def joined(self, request: QueuedRequest) -> None:
        """The request waits now."""
        self._moved(request, 1)

    def left(self, request: QueuedRequest) -> None:
        """The request waits no more, however that ended."""
        self._moved(request, -1)

    def _moved(self, request: QueuedRequest, count: int) -> None:
        if self._urgent[request.rank]:
            self._num_waiting += count
            # Sums of floats do not cancel exactly; an empty sum is exactly 0.
            waiting = self._waiting + count * request.cost
            self._waiting = waiting if self._num_waiting else 0.0
        elif request.deadline is not None:
            self._deadlines.moved(request.deadline, request.cost, count)

    def served(self, rank: int, cost: float, now: float) -> None:
        """A request of `rank` ended after service of that cost."""
        if self._urgent[rank] and cost > 0:
            if self._served == 0.0:
                self._first_at = now
            self._served = self._decayed(now) + cost
            self._served_at = now

    def demand(self, now: float) -> Demand:
        """Return what is asked of the nodes now."""
        # A sum that decays holds about `RATE_MEMORY_S` of service, less while it is young.
        seen_s = max(1.0, now - self._first_at)
        holds_s = RATE_MEMORY_S * (1 - exp(-seen_s / RATE_MEMORY_S))
        return Demand(
            urgent_rate=self._decayed(now) / holds_s,
            urgent_backlog=self._waiting,
            deadline_rate=self._deadlines.rate(now),
        )

    def _decayed(self, now: float) -> float:
        return self._served * exp(-max(0.0, now - self._served_at) / RATE_MEMORY_S)

    def check_idle(self) -> None:
        """Raise AssertionError unless nothing waits."""
        assert self._num_waiting == len(self._deadlines) == 0, "demand is left over"


class _Deadlines:
    """The cost that waits, by deadline."""

    def __init__(self) -> None:
        self._due: defaultdict[int, tuple[int, float]] = defaultdict(lambda: (0, 0.0))

    def __len__(self) -> int:
        return len(self._due)

    def moved(self, deadline: float, cost: float, count: int) -> None:
        step = int(deadline // DEADLINE_STEP_S)
        number, total = self._due[step]
        self._due[step] = (number + count, total + count * cost)
        if number + count == 0:
            del self._due[step]

    def rate(self, now: float) -> float:
        """Return the cost per second that keeps every deadline that can still be kept.

        It is the most that the work due up to any of them takes. Linear in minutes, not requests.
        """
        due, most = 0.0, 0.0
        for step in sorted(self._due):
            due += self._due[step][1]
            most = max(most, due / max(DEADLINE_STEP_S, step * DEADLINE_STEP_S - now))
        return most


class ReplicaMeter:
    """Says how many nodes there should be; ask it now and then.

    `headroom` is what to keep free for bursts, as a share of what urgent tiers are served.
    """

    def __init__(self, demand: DemandMeter, headroom: float) -> None:
        self._demand = demand
        self._headroom = headroom
        self._advisor = ReplicaAdvisor()
        self._rate: float | None = None
        self._node_rate: float | None = None

    def desired(self, rate: float | None, live: int, now: float) -> int:
        """Return the number of nodes, at least 1.

        `rate` is the measured cost per second of all `live` nodes under load, None while unknown.
        """
        if rate is not None and rate > 0 and live > 0 and rate != self._rate:
            # A rate that stays as it was is an old one, maybe of another number of nodes.
            self._rate, self._node_rate = rate, rate / live
        needed = None
        if self._node_rate is not None:
            needed = nodes_needed(self._demand.demand(now), self._node_rate, self._headroom)
        return self._advisor.advise(needed, live, now)
