"""Which flow goes next?

Weighted fair queueing by virtual time between the tenants of one tier: start-time fair queueing
with D requests outstanding, SFQ(D), with the counters, prices and lift of VTC (OSDI'24). The tenant
with the lowest tag (`service.py`) goes next; inside it the request with the lowest static key.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from headway.core.service import Account, Queued, ServiceLedger
from headway.core.sorted_items import SortedItems


class FairQueue:
    """The requests waiting in one tier. A change compares O(log n) of them.

    `pop` charges nothing. Service that was given is counted with `charge`, a prediction with
    `reserve` until `draw` has counted as much or `release`; `send` and `settle` are both at once.
    Everything that takes a weight raises ValueError for one not above 0.
    """

    def __init__(self) -> None:
        self._queued: dict[str, Queued] = {}
        self._waiting: SortedItems[Account] = SortedItems()  # by tag, then arrival of the head
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
        service = self._service
        account = service.account(tenant)
        if account.line.first is None:
            service.advance(self._waiting.first)
            # Who was forgotten just now, owing nothing, starts like anybody new.
            account = service.account(tenant)
            service.begin_waiting(account)
        self._sequence += 1
        queued = (key, self._sequence, request_id, account, cost / weight)
        self._queued[request_id] = queued
        account.line.add(queued)
        if account.line.first is queued:
            self._place(account)

    def peek(self) -> str | None:
        """Return the request that would be popped, or None."""
        head = self._head()
        return None if head is None else head[2]

    def pop(self) -> str | None:
        """Take out the next request and return it, or None. Charging is the caller's."""
        request_id = self.peek()
        if request_id is not None:
            self._service.advance(self._waiting.first)
            self.remove(request_id)
        return request_id

    def send(self) -> str | None:
        """Take out the next request and reserve its cost until `settle`; return it, or None."""
        if (head := self._head()) is None:
            return None
        _, _, request_id, account, share = head
        self._service.advance(self._waiting.first)
        self._service.reserve(request_id, account, share)
        del self._queued[request_id]
        self._leave(head)
        return request_id

    def remove(self, request_id: str) -> bool:
        """Take out a request, wherever it stands; return whether it was waiting."""
        if queued := self._queued.pop(request_id, None):
            self._leave(queued)
        return queued is not None

    def _leave(self, queued: Queued) -> None:
        account = queued[3]
        account.line.drop(queued)
        if account.line.first is None:
            self._waiting.remove(account)
            self._service.rest(account)
        else:
            self._place(account)

    def charge(self, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to the tenant; a negative cost is a refund."""
        amount = _by_weight(cost, weight)
        account = self._service.account(tenant)
        self._service.charge(account, amount)
        self._place(account)

    def reserve(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count the predicted cost of a request under way until `release`.

        Raises ValueError when it has a reservation.
        """
        amount = _by_weight(cost, weight)
        if self._service.has_reservation(request_id):
            raise ValueError(f"{request_id} has a reservation")
        account = self._service.account(tenant)
        self._service.reserve(request_id, account, amount)
        self._place(account)

    def draw(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to a request, out of its reservation as far as that reaches."""
        if not weight > 0:
            raise ValueError(f"weight must be above 0, got {weight}")
        if (beyond := self._service.draw(request_id, cost / weight)) > 0:
            self.charge(tenant, beyond)

    def release(self, request_id: str) -> bool:
        """Drop a request's reservation; return whether it had one."""
        account = self._service.release(request_id)
        if account is not None:
            self._place(account)
        return account is not None

    def settle(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Replace the reservation of a request, if it has one, by the service it was given."""
        account = self._service.release(request_id, _by_weight(cost, weight))
        if account is None:
            self.charge(tenant, cost, weight)
        else:
            self._place(account)

    def in_order(self) -> Iterator[str]:
        """Yield requests in the order of popping, were each charged its cost when popped.

        The first k cost O(k log k). The queue must not change meanwhile.
        """
        untouched = self._waiting.in_order()
        upcoming = next(untouched, None)
        begun: list[tuple[float, int, Queued, Iterator[Queued]]] = []
        while upcoming or begun:
            if upcoming and (not begun or upcoming[:2] < begun[0][:2]):
                tag, _, account = upcoming
                line = account.line.in_order()
                queued = next(line)
                upcoming = next(untouched, None)
            else:
                tag, _, queued, line = heappop(begun)
            yield queued[2]
            if following := next(line, None):
                heappush(begun, (tag + queued[4], following[1], following, line))

    def _place(self, account: Account) -> None:
        """Put a waiting tenant where its tag and its head request belong."""
        if head := account.line.first:
            self._waiting.push(account, account.served + account.reserved, head[1])

    def _head(self) -> Queued | None:
        first = self._waiting.first
        return None if first is None else first[2].line.first

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        accounts = [account for _, _, account in self._waiting.in_order()]
        lines = [list(account.line.in_order()) for account in accounts]
        assert all(lines), "a tenant is in order without requests"
        queued = sorted(self._queued.values(), key=lambda each: each[:2])
        assert sorted(chain(*lines), key=lambda each: each[:2]) == queued, "a request is lost"
        for line, account in zip(lines, accounts, strict=True):
            assert all(each[3] is account for each in line), "a request is somebody else's"
            assert line[0] is account.line.first, "another request is first"
        self._waiting.check_integrity()
        self._service.check_integrity()


def _by_weight(cost: float, weight: float) -> float:
    if not weight > 0:
        raise ValueError(f"weight must be above 0, got {weight}")
    return cost / weight
