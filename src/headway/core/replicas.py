"""How many nodes would it take?

Enough for what is promised a time: the work that urgent tiers bring, what of theirs waits already,
and work with a deadline, at the rate that keeps it. Other bulk work takes what is left over, so it
never asks for a node. All amounts are cost (`cost.py`).
"""

from dataclasses import dataclass
from math import ceil

BACKLOG_S = 30.0
"""How soon what urgent tiers have waiting should be gone."""
UP_S, DOWN_S = 30.0, 600.0
"""How long more, or fewer, nodes must have been needed before they are asked for."""
SLACK = 0.7
"""Fewer nodes are needed only when these would be used to less than this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is asked of all nodes together. `urgent`: of the tiers that are promised a time."""

    urgent_rate: float
    """Cost per second that they are served."""
    urgent_backlog: float
    """Cost of what they have waiting."""
    deadline_rate: float = 0.0
    """Cost per second that keeps the deadlines of the other tiers' requests."""


def nodes_needed(demand: Demand, node_rate: float, headroom: float) -> float:
    """Return how many nodes, a fraction, of `node_rate` cost per second each suffice.

    `headroom` is what to keep free for bursts, as a share of what the urgent are served.
    """
    rate = demand.urgent_rate * (1 + headroom) + demand.urgent_backlog / BACKLOG_S
    return (rate + demand.deadline_rate) / node_rate


class ReplicaAdvisor:
    """Turns what is needed now into a number of nodes that does not flap."""

    def __init__(self) -> None:
        self._desired: int | None = None
        self._above_since: float | None = None
        self._below_since: float | None = None
        self._most_needed = 0.0
        """While fewer would do: what was needed at most."""

    def advise(self, needed: float | None, live: int, now: float) -> int:
        """Return how many nodes there should be, at least 1.

        `needed` is how many would suffice now, None while unknown; `live` is how many there are.
        """
        if self._desired is None or needed is None:
            self._desired = max(1, live)
        if needed is None:
            return self._desired
        self._above_since = _since(self._above_since, now, holds=needed > self._desired)
        self._below_since = _since(self._below_since, now, holds=needed < SLACK * self._desired)
        self._most_needed = 0.0 if self._below_since is None else max(self._most_needed, needed)
        if self._above_since is not None and now - self._above_since >= UP_S:
            self._desired, self._above_since = ceil(needed), None
        elif self._below_since is not None and now - self._below_since >= DOWN_S:
            self._desired, self._below_since = max(1, ceil(self._most_needed)), None
            self._most_needed = 0.0
        return self._desired


def _since(since: float | None, now: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now if since is None else since
