"""Who waits at the gateway, in which tier, and until when?

The lanes of all tiers with what spans them: the bound on everything together, the time limits, and
the work that may move up a tier to meet its deadline.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.core.admission import Arrival
from headway.core.backlog import QueuedRequest
from headway.core.heap import IndexedHeap
from headway.core.lane import Lane
from headway.core.need import Need
from headway.core.promotion import Promotions, target_rank
from headway.core.wait import WaitEstimate

UNBOUNDED = 2**63


@dataclass(frozen=True, slots=True)
class TotalBounds:
    """Most that waits in all tiers together."""

    requests: int = UNBOUNDED
    tokens: int = UNBOUNDED


class Waiting:
    """The waiting requests of all lanes; `lanes[0]` is the most urgent. Changes cost O(log n)."""

    def __init__(self, lanes: Sequence[Lane], num_ranks: int, bounds: TotalBounds) -> None:
        self.lanes = tuple(lanes)
        self.promotions = Promotions()
        self._depths = [0] * num_ranks
        self._bounds = Need(bounds.requests, bounds.tokens)
        self._entries: dict[str, QueuedRequest] = {}
        self._expiry: IndexedHeap[str] = IndexedHeap()
        self._sequence = 0
        self._tokens = 0
        backlogs = [lane.backlog for lane in lanes]
        self._below = [backlogs[:index:-1] for index in range(len(lanes))]

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._entries)

    def __contains__(self, request_id: object) -> bool:
        """Return whether the request waits."""
        return request_id in self._entries

    def __getitem__(self, request_id: str) -> QueuedRequest:
        """Return a waiting request, of the tier that it waits in now."""
        return self._entries[request_id]

    def index(self, entry: QueuedRequest) -> int:
        """Return which lane `entry` belongs to: that of its rank, or the only one."""
        return entry.rank if len(self.lanes) > 1 else 0

    def lane(self, entry: QueuedRequest) -> Lane:
        """Return the lane that `entry` belongs to."""
        return self.lanes[self.index(entry)]

    def depth(self, rank: int) -> int:
        """Return how many requests of that rank wait."""
        return self._depths[rank]

    def backlogged(self) -> list[bool]:
        """Return for each lane whether anything waits there."""
        return [len(lane) > 0 for lane in self.lanes]

    def cost_above(self, index: int) -> float:
        """Return the predicted cost that waits in lanes more urgent than `index`."""
        cost = 0.0
        for lane in self.lanes[:index]:
            cost += lane.backlog.cost
        return cost

    def floors_below(self, index: int) -> float:
        """Return the sum of the floors that less urgent lanes with work waiting hold."""
        floors = 0.0
        for lane in self.lanes[index + 1 :]:
            if lane.tier.floor > 0 and len(lane):
                floors += lane.tier.floor
        return floors

    def arrival(self, entry: QueuedRequest, wait: WaitEstimate | None, now: float) -> Arrival:
        """Return what `entry` meets at the door."""
        index = self.index(entry)
        lane = self.lanes[index]
        held = Need(len(self._entries), self._tokens)
        return Arrival(
            entry=lane.flow(entry),
            wait=wait,
            expires_at=lane.expires_at(entry),
            time_limited=lane.tier.queue_timeout_s is not None,
            over_level=lane.is_over_level(entry, now),
            own=lane.backlog,
            below=self._below[index],
            excess=held.beyond(self._bounds, entry.tokens),
        )

    def join(self, entry: QueuedRequest) -> None:
        """Queue an admitted request."""
        lane = self.lane(entry)
        if len(self.lanes) > 1 and target_rank(entry) is not None:
            self.promotions.watch(entry, lane.cost_ahead(entry), lane.served, entry.arrival)
        lane.join(entry)
        expires_at = lane.expires_at(entry)
        if expires_at is not None:
            self._sequence += 1
            self._expiry.push(entry.request_id, expires_at, self._sequence)
        self._entries[entry.request_id] = entry
        self._depths[entry.rank] += 1
        self._tokens += entry.tokens

    def send(self, index: int, now: float) -> QueuedRequest:
        """Take out the request of a lane that leaves next."""
        entry = self.lanes[index].send(now)
        self._forget(entry)
        return entry

    def remove(self, request_id: str) -> bool:
        """Take a request out unserved; return whether it waited."""
        entry = self._entries.get(request_id)
        if entry is None:
            return False
        self.lane(entry).leave(request_id)
        self._forget(entry)
        return True

    def move(self, request_id: str, rank: int, now: float) -> bool:
        """Let a request wait in the tier of `rank` as if it arrived there now, its time limit kept.

        Returns False, changing nothing, when that tier has no room: nobody gives way for it.
        """
        entry = self._entries[request_id]
        moved = replace(entry, rank=rank, arrival=now, promoted=rank < entry.rank)
        if self.lane(moved).backlog.shortage(moved):
            return False
        self.lane(entry).leave(request_id)
        self.lane(moved).join(moved)
        self._entries[request_id] = moved
        self._depths[entry.rank] -= 1
        self._depths[rank] += 1
        self.promotions.forget(request_id)
        return True

    def beyond(self, cost: float) -> list[str]:
        """Return what is not among the first of `cost` in all, by strict priority. Linear."""
        gone: list[str] = []
        for lane in self.lanes:
            for entry in lane.in_order():
                cost -= entry.cost
                if cost < 0:
                    gone.append(entry.request_id)
        return gone

    def next_expiry(self) -> tuple[float, str] | None:
        """Return when which request expires first, or None."""
        first = self._expiry.peek()
        return None if first is None else (first[0], first[2])

    def next_change(self) -> float | None:
        """Return when a request expires or has to be looked at; None: never."""
        expiry, look = self._expiry.peek(), self.promotions.next_look()
        if expiry is None:
            return look
        return expiry[0] if look is None else min(expiry[0], look)

    def _forget(self, entry: QueuedRequest) -> None:
        del self._entries[entry.request_id]
        self._expiry.remove(entry.request_id)
        self.promotions.forget(entry.request_id)
        self._depths[entry.rank] -= 1
        self._tokens -= entry.tokens

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        assert sum(self._depths) == len(self), "the depths do not add up"
        assert sum(lane.backlog.tokens for lane in self.lanes) == self._tokens, "tokens are lost"
        assert sum(len(lane) for lane in self.lanes) == len(self), "one is lost"
        assert len(self._expiry) <= len(self), "an expired request is left over"
        assert len(self.promotions) <= len(self), "a promotion is left over"
        for lane in self.lanes:
            lane.check_integrity()
