"""What waits in one tier, and in which order does it leave?

Brings together what is decided about one tier: bounds (`backlog.py`), tenant (`fairness.py`) and
request (`ordering.py`). First come, first served is one lane whose requests are all of one tenant
and equally urgent, so that arrival decides.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headway.core.backlog import Backlog, QueuedRequest
from headway.core.fairness import FairQueue
from headway.core.ordering import order_key
from headway.core.shedding import Level
from headway.core.tier import Tier, Tiers


class Sent(NamedTuple):
    """A request that was dispatched and has not ended."""

    entry: QueuedRequest
    paid: float
    """How much of its tier's claim to a floor the dispatch paid off."""
    at: float
    """When it was dispatched."""
    blocked: tuple[bool, ...]
    """The ranks that had no credit then, whose claims it left alone; empty: all had."""


class Lane:
    """One tier's requests, waiting and sent. `entries` holds what waits, maybe of other lanes, too.

    `by_key`: inside a tenant by urgency, otherwise by arrival.
    """

    def __init__(
        self, tier: Tier, entries: Mapping[str, QueuedRequest], *, by_key: bool = True
    ) -> None:
        self.tier = tier
        self.backlog = Backlog(tier.max_queued, tier.max_queued_tokens)
        self.served = 0.0
        """Predicted cost of all that ever left for a node."""
        self._by_key = by_key
        self._queue = FairQueue()
        self._entries = entries
        # The most urgent tier is refused by its bounds alone, and one without limits can wait.
        limited = tier.rank > 0 and tier.queue_timeout_s is not None
        target_s = tier.target.ttft_s if limited else None
        self._level = None if target_s is None else Level(target_s)

    def expires_at(self, entry: QueuedRequest) -> float | None:
        """Return when `entry` leaves the queue unserved: its deadline or the tier's time limit."""
        deadline, timeout_s = entry.deadline, self.tier.queue_timeout_s
        if timeout_s is None:
            return deadline
        limit = entry.arrival + timeout_s
        return limit if deadline is None else min(limit, deadline)

    def cost_ahead(self, entry: QueuedRequest) -> float:
        """Return the cost served before `entry` in this tier if it arrived now, at most; O(1).

        Its own tenant's backlog is served at the tenant's share of the tier, and never more than
        all that waits in the tier is ahead.
        """
        backlog = self.backlog
        own_cost = backlog.tenant_cost(entry.tenant)
        if own_cost <= 0:
            return 0.0
        return min(backlog.cost, own_cost * backlog.total_weight / entry.weight)

    def is_over_level(self, entry: QueuedRequest, now: float) -> bool:
        """Return whether the tier, being overloaded, turns the tenant of `entry` away."""
        if self._level is None:
            return False
        if not self.backlog.requests:
            self._level.lull(now)
        return self._level.turns_away(entry.tenant, now) and self.backlog.is_over_share(entry)

    def join(self, entry: QueuedRequest) -> None:
        """Queue an admitted request."""
        key = 0.0
        if self._by_key:
            key = order_key(
                entry.arrival,
                ttft_s=self.tier.target.ttft_s,
                deadline=entry.deadline,
                prompt_tokens=entry.prompt_tokens,
            )
        self._queue.push(
            entry.request_id, entry.tenant, weight=entry.weight, cost=entry.cost, key=key
        )
        self.backlog.add(entry)

    def leave(self, entry: QueuedRequest) -> None:
        """Take a request out of the queue, at no cost."""
        self._queue.remove(entry.request_id)
        self.backlog.remove(entry)

    def head(self) -> QueuedRequest | None:
        """Return the request that leaves next, or None."""
        request_id = self._queue.peek()
        return None if request_id is None else self._entries[request_id]

    def in_order(self) -> Iterator[QueuedRequest]:
        """Yield what waits in the order of leaving; the lane must not change meanwhile."""
        return (self._entries[request_id] for request_id in self._queue.in_order())

    def send(self, now: float) -> QueuedRequest:
        """Take out the request that leaves next; its prediction counts until `settle`.

        Raises LookupError when nothing waits.
        """
        request_id = self._queue.send()
        if request_id is None:
            raise LookupError(f"nothing waits in tier {self.tier.name}")
        entry = self._entries[request_id]
        self.backlog.remove(entry)
        self.served += entry.cost
        if self._level is not None:
            self._level.waited(now - entry.arrival, now)
        return entry

    def settle(self, entry: QueuedRequest, cost_actual: float) -> None:
        """Replace the prediction of a sent request by its actual cost."""
        self._queue.release(entry.request_id, cost_actual, entry.weight)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        assert len(self._queue) == self.backlog.requests, "one is lost"
        self._queue.check_integrity()
        self.backlog.check_integrity()


def merged_tier(tiers: Tiers) -> Tier:
    """Return one tier as lenient as all together, for first come, first served."""
    timeouts = [tier.queue_timeout_s for tier in tiers.all if tier.queue_timeout_s is not None]
    return Tier(
        name="all",
        rank=0,
        queue_timeout_s=max(timeouts) if len(timeouts) == len(tiers) else None,
        max_queued=sum(tier.max_queued for tier in tiers.all),
        max_queued_tokens=sum(tier.max_queued_tokens for tier in tiers.all),
    )
