"""Which flow goes next?

Weighted fair queueing by virtual time between the tenants of one tier: start-time fair queueing
with D requests outstanding, SFQ(D), with the counters, prices and lift of VTC (OSDI'24). The tenant
with the lowest tag (`service.py`) goes next; inside it the request with the lowest static key.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain

from headway.core.service import Account, Place, Queued, ServiceLedger
from headway.core.sorted_items import SortedEntries


class FairQueue:
    """The requests waiting in one tier. A change compares O(log n) of them.

    Service that was given is counted with `charge`, a prediction with `reserve` until `draw` has
    counted as much or `release`; `send` takes a request out and reserves its cost at once.
    Everything that takes a weight raises ValueError for one not above 0.
    """

    def __init__(self) -> None:
        self.service = ServiceLedger()
        self._queued: dict[str, Queued] = {}
        self._waiting: SortedEntries[Place] = SortedEntries()
        self._sequence = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._queued)

    def __contains__(self, request_id: object) -> bool:
        """Return whether the request waits here."""
        return request_id in self._queued

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
        service = self.service
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
        """Return the request that goes next, or None."""
        head = self._head()
        return None if head is None else head[2]

    def send(self) -> str | None:
        """Take out the next request and reserve its cost until `release`; return it, or None."""
        if (head := self._head()) is None:
            return None
        _, _, request_id, account, share = head
        self.service.advance(self._waiting.first)
        self.service.reserve(request_id, account.tenant, share)
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
        self._place(account)
        self.service.rest(account)

    def charge(self, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to the tenant; a negative cost is a refund."""
        amount = _by_weight(cost, weight)
        account = self.service.account(tenant)
        self.service.charge(account, amount)
        self._place(account)

    def reserve(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count the predicted cost of a request under way until `release`.

        Raises ValueError when it has a reservation.
        """
        self._place(self.service.reserve(request_id, tenant, _by_weight(cost, weight)))

    def draw(self, request_id: str, tenant: str, cost: float, weight: float = 1.0) -> None:
        """Count service given to a request, out of its reservation as far as that reaches."""
        if not weight > 0:
            raise ValueError(f"weight must be above 0, got {weight}")
        if (beyond := self.service.draw(request_id, cost / weight)) > 0:
            self.charge(tenant, beyond)

    def release(self, request_id: str, cost: float = 0.0, weight: float = 1.0) -> bool:
        """Replace a request's reservation by the service it was given; return whether it had one.

        Without a reservation nothing is counted.
        """
        account = self.service.release(request_id, _by_weight(cost, weight))
        if account is not None:
            self._place(account)
        return account is not None

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
        """Let a tenant stand where its tag and its next request belong, if it has one."""
        head, before = account.line.first, account.place
        place = None if head is None else (account.served + account.reserved, head[1], account)
        if place == before:
            return
        if before is not None:
            self._waiting.drop(before)
        if place is not None:
            self._waiting.add(place)
        account.place = place

    def _head(self) -> Queued | None:
        first = self._waiting.first
        return None if first is None else first[2].line.first

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        places = list(self._waiting.in_order())
        lines = chain.from_iterable(account.line.in_order() for _, _, account in places)
        queued = sorted(self._queued.values(), key=lambda each: each[:2])
        assert sorted(lines, key=lambda each: each[:2]) == queued, "a request is lost"
        for place in places:
            tag, arrival, account = place
            assert place is account.place, "a tenant stands in two places"
            drift = abs(tag - account.served - account.reserved)
            assert drift <= 1e-6 * max(1.0, tag), "a tenant's tag has drifted"
            line = list(account.line.in_order())
            assert line, "a tenant is in order without requests"
            assert line[0][1] == arrival, "another request is first"
            assert all(each[3] is account for each in line), "a request is somebody else's"
            account.line.check_integrity()
        self._waiting.check_integrity()
        self.service.check_integrity()


def _by_weight(cost: float, weight: float) -> float:
    if not weight > 0:
        raise ValueError(f"weight must be above 0, got {weight}")
    return cost / weight
