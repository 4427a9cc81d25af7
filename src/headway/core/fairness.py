"""Which flow goes next?

Weighted fair queueing by virtual time between the tenants of one tier: start-time fair queueing
with D requests outstanding, SFQ(D), with the counters, prices and lift of VTC (OSDI'24). The tenant
with the lowest tag (`service.py`) goes next; inside it the request with the lowest static key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from headway.core.service import ServiceLedger
from headway.core.sorted_items import SortedItems


@dataclass(slots=True)
class _Queued:
    tenant: str
    cost: float
    weight: float


class FairQueue:
    """The requests waiting in one tier. Every change costs O(log n).

    `pop` charges nothing. Service that was given is counted with `charge`, a prediction with
    `reserve` until `draw` has counted as much or `release`; `send` and `settle` are both at once.
    Everything that takes a weight raises ValueError for one not above 0.
    """

    def __init__(self) -> None:
        self._queued: dict[str, _Queued] = {}
        self._lines: dict[str, SortedItems[str]] = {}  # by tenant: requests by key, then arrival
        self._tenants: SortedItems[str] = SortedItems()  # by tag, then arrival of the head request
        self._service = ServiceLedger()
        self._sequence = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._queued)

    def __contains__(self, request_id: object) -> bool:
        """Return whether the request waits here."""
        return request_id in self._queued

    @property
    def virtual_time(self) -> float:
        """What a returning tenant is lifted to; never moves back."""
        return self._service.virtual_time

    @property
    def num_tenants(self) -> int:
        """How many tenants are remembered, waiting or not."""
        return len(self._service)

    def push(
        self, request_id: str, tenant: str, *, weight: float = 1.0, cost: float, key: float
    ) -> None:
        """Queue a request; inside its tenant the order is by `key`, then by arrival.

        Raises ValueError for a known id or a negative cost.
        """
        if request_id in self._queued:
            raise ValueError(f"{request_id} waits already")
        if not (weight > 0 and cost >= 0):
            raise ValueError(f"weight must be above 0, cost at least 0, got {weight} and {cost}")
        if tenant not in self._lines:
            self._service.advance(self._next_tenant())
            self._service.begin_waiting(tenant)
            self._lines[tenant] = SortedItems()
        self._sequence += 1
        self._lines[tenant].push(request_id, key, self._sequence)
        self._queued[request_id] = _Queued(tenant, cost, weight)
        self._place(tenant)

    def peek(self) -> str | None:
        """Return the request that would be popped, or None."""
        tenant = self._next_tenant()
        head = None if tenant is None else self._lines[tenant].peek()
        return None if head is None else head[2]

    def pop(self) -> str | None:
        """Take out the next request and return it, or None. Charging is the caller's."""
        request_id = self.peek()
        if request_id is not None:
            self._service.advance(self._next_tenant())
            self.remove(request_id)
        return request_id

    def send(self) -> str | None:
        """Take out the next request and reserve its cost until `settle`; return it, or None."""
        request_id = self.peek()
        if request_id is not None:
            self._service.advance(self._next_tenant())
            queued = self._take(request_id)
            self._service.reserve(request_id, queued.tenant, queued.cost / queued.weight)
            self._place(queued.tenant)
        return request_id

    def remove(self, request_id: str) -> bool:
        """Take out a request, wherever it stands; return whether it was waiting."""
        if request_id not in self._queued:
            return False
        self._place(self._take(request_id).tenant)
        return True

    def _take(self, request_id: str) -> _Queued:
        queued = self._queued.pop(request_id)
        line = self._lines[queued.tenant]
        line.remove(request_id)
        if not line:
            del self._lines[queued.tenant]
            self._tenants.remove(queued.tenant)
            self._service.end_waiting(queued.tenant)
        return queued

    def charge(self, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to the tenant; a negative cost is a refund."""
        self._service.charge(tenant, _by_weight(cost, weight))
        self._place(tenant)

    def reserve(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count the predicted cost of a request under way until `release`.

        Raises ValueError when it has a reservation.
        """
        self._service.reserve(request_id, tenant, _by_weight(cost, weight))
        self._place(tenant)

    def draw(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to a request, out of its reservation as far as that reaches."""
        beyond = self._service.draw(request_id, _by_weight(cost, weight))
        if beyond > 0:
            self._service.charge(tenant, beyond)
            self._place(tenant)

    def release(self, request_id: str) -> bool:
        """Drop a request's reservation; return whether it had one."""
        tenant = self._service.release(request_id)
        if tenant is not None:
            self._place(tenant)
        return tenant is not None

    def settle(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Replace the reservation of a request, if it has one, by the service it was given."""
        amount = _by_weight(cost, weight)
        self._service.release(request_id)
        self._service.charge(tenant, amount)
        self._place(tenant)

    def in_order(self) -> Iterator[str]:
        """Yield requests in the order of popping, were each charged its cost when popped.

        The first k cost O(k log k). The queue must not change meanwhile.
        """
        untouched = self._tenants.in_order()
        upcoming = next(untouched, None)
        begun: list[tuple[float, int, str, Iterator[tuple[float, int, str]]]] = []
        while upcoming or begun:
            if upcoming and (not begun or upcoming[:2] < begun[0][:2]):
                tag, _, tenant = upcoming
                line = self._lines[tenant].in_order()
                request_id = next(line)[2]
                upcoming = next(untouched, None)
            else:
                tag, _, request_id, line = heappop(begun)
            yield request_id
            if following := next(line, None):
                queued = self._queued[request_id]
                tag += queued.cost / queued.weight
                heappush(begun, (tag, following[1], following[2], line))

    def _next_tenant(self) -> str | None:
        first = self._tenants.peek()
        return None if first is None else first[2]

    def _place(self, tenant: str) -> None:
        """Put a waiting tenant where its tag and its head request belong."""
        line = self._lines.get(tenant)
        head = None if line is None else line.peek()
        if head is not None:
            self._tenants.push(tenant, self._service.tag(tenant), head[1])

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        queued = sum(len(line) for line in self._lines.values())
        assert queued == len(self._queued), "a request waits twice or nowhere"
        assert all(self._lines.values()), "an empty line is kept"
        assert all(tenant in self._tenants for tenant in self._lines), "a tenant is not in order"
        assert len(self._tenants) == len(self._lines), "a tenant is in order without requests"
        for heap in (self._tenants, *self._lines.values()):
            heap.check_integrity()
        self._service.check_integrity()


def _by_weight(cost: float, weight: float) -> float:
    if not weight > 0:
        raise ValueError(f"weight must be above 0, got {weight}")
    return cost / weight
