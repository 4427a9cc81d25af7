"""Which flow goes next?

Weighted fair queueing by virtual time between the tenants of one tier: start-time fair queueing
with D requests outstanding, SFQ(D), with the counters, prices and lift of VTC (OSDI'24). The tenant
with the lowest tag (`service.py`) goes next; inside it the request with the lowest static key.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from headway.core.service import Account, ServiceLedger
from headway.core.sorted_items import SortedItems


class FairQueue:
    """The requests waiting in one tier. Every change costs O(log n).

    `pop` charges nothing. Service that was given is counted with `charge`, a prediction with
    `reserve` until `draw` has counted as much or `release`; `send` and `settle` are both at once.
    Everything that takes a weight raises ValueError for one not above 0.
    """

    def __init__(self) -> None:
        self._queued: dict[str, tuple[Account, float]] = {}  # with its cost by weight
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
        account = self._service.account(tenant)
        if account.line is None:
            self._service.advance(self._first())
            # Who was forgotten just now, owing nothing, starts like anybody new.
            account = self._service.account(tenant)
            self._service.begin_waiting(account)
        assert account.line is not None, "begun to wait without a line"
        self._sequence += 1
        account.line.push(request_id, key, self._sequence)
        self._queued[request_id] = (account, cost / weight)
        head = account.line.first
        if head is not None and head[2] == request_id:
            self._place(account)

    def peek(self) -> str | None:
        """Return the request that would be popped, or None."""
        first = self._waiting.first
        head = None if first is None or first[2].line is None else first[2].line.first
        return None if head is None else head[2]

    def pop(self) -> str | None:
        """Take out the next request and return it, or None. Charging is the caller's."""
        request_id = self.peek()
        if request_id is not None:
            self._service.advance(self._first())
            self.remove(request_id)
        return request_id

    def send(self) -> str | None:
        """Take out the next request and reserve its cost until `settle`; return it, or None."""
        request_id = self.peek()
        if request_id is not None:
            account, share = self._queued.pop(request_id)
            self._service.advance(account)
            self._service.reserve(request_id, account.tenant, share)
            self._leave(account, request_id)
        return request_id

    def remove(self, request_id: str) -> bool:
        """Take out a request, wherever it stands; return whether it was waiting."""
        account, _ = self._queued.pop(request_id, (None, 0.0))
        if account is None:
            return False
        self._leave(account, request_id)
        return True

    def _leave(self, account: Account, request_id: str) -> None:
        assert account.line is not None, "who waits stands in a line"
        account.line.remove(request_id)
        if account.line:
            self._place(account)
        else:
            self._waiting.remove(account)
            self._service.end_waiting(account)

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
        self._place(self._service.reserve(request_id, tenant, _by_weight(cost, weight)))

    def draw(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to a request, out of its reservation as far as that reaches."""
        beyond = self._service.draw(request_id, _by_weight(cost, weight))
        if beyond > 0:
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
        begun: list[tuple[float, int, str, Iterator[tuple[float, int, str]]]] = []
        while upcoming or begun:
            if upcoming and (not begun or upcoming[:2] < begun[0][:2]):
                tag, _, account = upcoming
                assert account.line is not None, "who waits stands in a line"
                line = account.line.in_order()
                request_id = next(line)[2]
                upcoming = next(untouched, None)
            else:
                tag, _, request_id, line = heappop(begun)
            yield request_id
            if following := next(line, None):
                tag += self._queued[request_id][1]
                heappush(begun, (tag, following[1], following[2], line))

    def _first(self) -> Account | None:
        first = self._waiting.first
        return None if first is None else first[2]

    def _place(self, account: Account) -> None:
        """Put a waiting tenant where its tag and its head request belong."""
        head = None if account.line is None else account.line.first
        if head is not None:
            self._waiting.push(account, account.served + account.reserved, head[1])

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        accounts = [account for _, _, account in self._waiting.in_order()]
        lines = [account.line for account in accounts if account.line]
        assert len(lines) == len(accounts), "a tenant is in order without requests"
        assert sum(len(line) for line in lines) == len(self._queued), "a request is lost"
        waiting = {id(account) for account, _ in self._queued.values()}
        assert waiting == {id(account) for account in accounts}, "a tenant is not in order"
        for line in lines:
            line.check_integrity()
        self._waiting.check_integrity()
        self._service.check_integrity()


def _by_weight(cost: float, weight: float) -> float:
    if not weight > 0:
        raise ValueError(f"weight must be above 0, got {weight}")
    return cost / weight
