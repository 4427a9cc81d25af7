"""Who holds how much of a tier's queue, and who would have to make room?

A tenant's *share* is the larger of its shares of the two bounds, requests and tokens, divided by
its weight (dominant share). Room is made by the newest requests of the tenant with the largest.
"""

from dataclasses import dataclass, field

from headway.core.heap import IndexedHeap

MAX_EVICTIONS = 8
"""Most requests that one arrival may displace, so that refusing stays cheap."""


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


@dataclass(slots=True)
class _Holding:
    weight: float
    cost: float = 0.0
    tokens: int = 0
    newest: IndexedHeap[str] = field(default_factory=IndexedHeap)


class Backlog:
    """What waits in one tier, by tenant. Every change costs O(log n)."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self.tokens = 0
        self.total_weight = 0.0
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._entries: dict[str, tuple[QueuedRequest, int]] = {}
        self._holdings: dict[str, _Holding] = {}
        self._by_share: IndexedHeap[str] = IndexedHeap()  # the largest share first
        self._sequence = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._entries)

    def tenant_cost(self, tenant: str) -> float:
        """Return the predicted cost of what the tenant has waiting."""
        holding = self._holdings.get(tenant)
        return 0.0 if holding is None else holding.cost

    def add(self, entry: QueuedRequest) -> None:
        """Count a request that joins the queue."""
        self._sequence += 1
        self._add(entry, self._sequence)

    def remove(self, request_id: str) -> bool:
        """Stop counting a request that left the queue; return whether it was counted."""
        entry, _ = self._entries.pop(request_id, (None, 0))
        if entry is None:
            return False
        holding = self._holdings[entry.tenant]
        holding.newest.remove(request_id)
        holding.cost -= entry.cost
        holding.tokens -= entry.tokens
        self.tokens -= entry.tokens
        if holding.newest:
            self._place(entry.tenant)
        else:
            del self._holdings[entry.tenant]
            self._by_share.remove(entry.tenant)
            self.total_weight = self.total_weight - holding.weight if self._holdings else 0.0
        return True

    def fits(self, entry: QueuedRequest) -> bool:
        """Return whether the bounds have room. One that exceeds them alone may wait alone."""
        if not self._entries:
            return True
        within_tokens = self.tokens + entry.tokens <= self._max_tokens
        return within_tokens and len(self) < self._max_requests

    def make_room(self, entry: QueuedRequest) -> tuple[str, ...] | None:
        """Return whom to evict so that `entry` fits: nobody, or the newest of over-share tenants.

        Only tenants with a larger share than the arrival's tenant would have with it give way.
        None: they do not give enough room, and the arrival is the one to refuse.
        """
        own_share = self._share(self._holdings.get(entry.tenant), entry)
        taken: list[tuple[QueuedRequest, int]] = []
        while not self.fits(entry) and len(taken) < MAX_EVICTIONS:
            first = self._by_share.peek()
            if first is None or first[2] == entry.tenant or -first[0] <= own_share:
                break
            newest = self._holdings[first[2]].newest.peek()
            assert newest is not None, "a tenant without requests is kept"
            taken.append(self._entries[newest[2]])
            self.remove(newest[2])
        enough = self.fits(entry)
        for victim, sequence in reversed(taken):
            self._add(victim, sequence)
        return tuple(victim.request_id for victim, _ in taken) if enough else None

    def _add(self, entry: QueuedRequest, sequence: int) -> None:
        self._entries[entry.request_id] = (entry, sequence)
        holding = self._holdings.setdefault(entry.tenant, _Holding(0.0))
        self.total_weight += entry.weight - holding.weight
        holding.weight = entry.weight
        holding.cost += entry.cost
        holding.tokens += entry.tokens
        holding.newest.push(entry.request_id, -sequence, -sequence)
        self.tokens += entry.tokens
        self._place(entry.tenant)

    def _share(self, holding: _Holding | None, extra: QueuedRequest | None = None) -> float:
        requests, tokens, weight = (0, 0, 1.0)
        if holding is not None:
            requests, tokens, weight = len(holding.newest), holding.tokens, holding.weight
        if extra is not None:
            requests, tokens, weight = requests + 1, tokens + extra.tokens, extra.weight
        return max(requests / self._max_requests, tokens / self._max_tokens) / weight

    def _place(self, tenant: str) -> None:
        holding = self._holdings[tenant]
        oldest_claim = holding.newest.peek()
        assert oldest_claim is not None, "a tenant without requests is kept"
        self._by_share.push(tenant, -self._share(holding), oldest_claim[1])

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        entries = [entry for entry, _ in self._entries.values()]
        assert self.tokens == sum(entry.tokens for entry in entries), "tokens have drifted"
        held = sum(len(holding.newest) for holding in self._holdings.values())
        assert held == len(entries), "a request is counted twice or nowhere"
        assert set(self._holdings) == {entry.tenant for entry in entries}, "a tenant is left over"
        weight = sum(holding.weight for holding in self._holdings.values())
        assert abs(weight - self.total_weight) <= 1e-6 * max(1.0, weight), "weights have drifted"
        self._by_share.check_integrity()
