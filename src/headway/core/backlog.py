"""Who holds how much of a tier's queue, and who would have to make room?

A tenant's *share* is the larger of its shares of the two bounds, requests and tokens, divided by
its weight (dominant share). Room is made by the newest requests of the tenant with the largest.
"""

from dataclasses import dataclass, field
from math import inf

from headway.core.need import Amount, shortage
from headway.core.sorted_items import SortedItems

MAX_CHANGED = 64
"""Tenants whose places are not up to date: as arrivals see to two each, dispatches seldom do."""
MAX_EVICTIONS = 8
"""Most requests of its own tier that one arrival may displace, so that refusing stays cheap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRequest:
    """A request as the gateway queues it. Times are seconds of the caller's clock."""

    request_id: str
    rank: int
    tenant: str
    weight: float = 1.0
    cost: float
    """Predicted cost (`cost.request_cost`)."""
    tokens: int
    """Predicted tokens, prompt and output, counted against the tier's bound."""
    arrival: float
    deadline: float | None = None
    """When the answer stops being wanted; None: never."""
    prompt_tokens: int = 0
    highest_rank: int = 0
    """The most urgent rank that its caller may use; it is never promoted above that."""
    promoted: bool = False
    """Whether it waits one tier above its own; set by the dispatcher."""


@dataclass(slots=True)
class _Holding:
    weight: float
    cost: float = 0.0
    tokens: int = 0
    queued: dict[str, tuple[int, QueuedRequest]] = field(default_factory=dict)
    """By id, with the number of its arrival; the newest last."""


class Backlog:
    """What waits in one tier, by tenant. A change costs O(log tenants)."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self.requests = 0
        self.tokens = 0
        self.cost = 0.0
        self.total_weight = 0.0
        self._bounds = Amount(max_requests, max_tokens)
        self._holdings: dict[str, _Holding] = {}
        self._by_share: SortedItems[str] = SortedItems()
        """(-share, -newest, tenant): the largest share first, but for those in `_changed`."""
        self._changed: dict[str, None] = {}
        self._sequence = 0

    def tenant_cost(self, tenant: str) -> float:
        """Return the predicted cost of what the tenant has waiting."""
        holding = self._holdings.get(tenant)
        return 0.0 if holding is None else holding.cost

    def remove(self, entry: QueuedRequest) -> None:
        """Stop counting a request that leaves the queue."""
        holding = self._holdings[entry.tenant]
        del holding.queued[entry.request_id]
        self._uncount(holding, entry)

    def _uncount(self, holding: _Holding, entry: QueuedRequest) -> None:
        self.requests -= 1
        self.tokens -= entry.tokens
        if holding.queued:
            holding.cost -= entry.cost
            holding.tokens -= entry.tokens
            self.cost -= entry.cost
            self._changed[entry.tenant] = None
            if len(self._changed) > MAX_CHANGED:
                self._place(1)
            return
        del self._holdings[entry.tenant]
        self._changed.pop(entry.tenant, None)
        self._by_share.remove(entry.tenant)
        # Sums of floats do not cancel exactly; an empty sum is exactly 0.
        self.cost = self.cost - entry.cost if self.requests else 0.0
        self.total_weight = self.total_weight - holding.weight if self.requests else 0.0

    def shortage(self, entry: QueuedRequest) -> Amount:
        """Return what has to leave so that the bounds have room for `entry`."""
        return shortage(self.requests, self.tokens, entry.tokens, self._bounds)

    def is_over_share(self, entry: QueuedRequest) -> bool:
        """Return whether the tenant of `entry` holds its share, by cost, of what several hold."""
        holding = self._holdings.get(entry.tenant)
        if holding is None or len(self._holdings) < 2:
            return False
        return holding.cost / holding.weight >= self.cost / self.total_weight

    def give_way(self, entry: QueuedRequest, need: Amount, most: int) -> list[QueuedRequest]:
        """Return whom to evict for `entry`: the newest of tenants with a larger share than its own.

        That is its tenant's share with it. They may be too few.
        """
        own = self._holdings.get(entry.tenant, _Holding(entry.weight))
        requests, tokens = len(own.queued) + 1, own.tokens + entry.tokens
        return self.newest(need, most, self._share(requests, tokens, entry.weight), entry.tenant)

    def newest(
        self, need: Amount, most: float = inf, above_share: float = -1.0, spare: str | None = None
    ) -> list[QueuedRequest]:
        """Return at most `most` requests to evict for `need`, changing nothing; maybe too few.

        They are the newest of whoever holds the largest share at that point, while it is above
        `above_share`. `spare` is a tenant that does not give way.
        """
        taken: list[tuple[int, QueuedRequest]] = []
        left = need
        while left and len(taken) < most:
            self._place(len(self._changed))
            first = self._by_share.first
            if first is None or first[2] == spare or -first[0] <= above_share:
                break
            holding = self._holdings[first[2]]
            _, (sequence, newest) = holding.queued.popitem()
            self._uncount(holding, newest)
            taken.append((sequence, newest))
            left = left.less([newest.tokens])
        for sequence, victim in reversed(taken):
            self.add(victim, sequence)
        return [victim for _, victim in taken]

    def add(self, entry: QueuedRequest, sequence: int | None = None) -> None:
        """Count a request that joins the queue; `sequence`: back at its old place."""
        if sequence is None:
            sequence = self._sequence = self._sequence + 1
        holding = self._holdings.get(entry.tenant)
        if holding is None:
            holding = self._holdings[entry.tenant] = _Holding(0.0)
        self.total_weight += entry.weight - holding.weight
        holding.weight = entry.weight
        holding.cost += entry.cost
        holding.tokens += entry.tokens
        holding.queued[entry.request_id] = (sequence, entry)
        self.requests += 1
        self.tokens += entry.tokens
        self.cost += entry.cost
        self._changed[entry.tenant] = None
        self._place(2)

    def _share(self, requests: int, tokens: int, weight: float) -> float:
        return max(requests / self._bounds.requests, tokens / self._bounds.tokens) / weight

    def _place(self, most: int) -> None:
        """Give so many of the tenants whose share changed their new places."""
        for _ in range(min(most, len(self._changed))):
            tenant, _ = self._changed.popitem()
            self._by_share.push(tenant, *self._claim(self._holdings[tenant]))

    def _claim(self, holding: _Holding) -> tuple[float, int]:
        share = self._share(len(holding.queued), holding.tokens, holding.weight)
        return -share, -next(reversed(holding.queued.values()))[0]

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        holdings = self._holdings
        entries = [entry for one in holdings.values() for _, entry in one.queued.values()]
        assert self.requests == len(entries), "a request is counted twice or nowhere"
        assert self.tokens == sum(entry.tokens for entry in entries), "tokens have drifted"
        cost = sum(entry.cost for entry in entries)
        assert abs(cost - self.cost) <= 1e-6 * max(1.0, cost), "cost has drifted"
        assert set(holdings) == {entry.tenant for entry in entries}, "a tenant is left over"
        weight = sum(holding.weight for holding in holdings.values())
        assert abs(weight - self.total_weight) <= 1e-6 * max(1.0, weight), "weights have drifted"
        self._by_share.check_integrity()
        places = {tenant: (share, newest) for share, newest, tenant in self._by_share.in_order()}
        claims = {tenant: self._claim(holding) for tenant, holding in holdings.items()}
        assert len(self._changed) <= MAX_CHANGED, "too much is put off"
        assert all(tenant in claims for tenant in self._changed), "a change is left over"
        for tenant in claims.keys() - self._changed.keys():
            assert places[tenant] == claims[tenant], f"{tenant} has another place"
