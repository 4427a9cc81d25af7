"""Who waits at the gateway, in which tier, and until when?

The lanes of all tiers with what spans them: the bound on everything together, the time limits, and
the work that may move up a tier to meet its deadline.
"""

from dataclasses import dataclass, replace

from headway.core.admission import Arrival
from headway.core.backlog import QueuedRequest
from headway.core.lane import Lane, merged_tier
from headway.core.need import Need
from headway.core.promotion import Promotions, target_rank
from headway.core.sorted_items import SortedItems
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate

UNBOUNDED = 2**63


@dataclass(frozen=True, slots=True)
class TotalBounds:
    """Most that waits in all tiers together."""

    requests: int = UNBOUNDED
    tokens: int = UNBOUNDED


class Waiting:
    """The waiting requests of all tiers, each in its lane; `lanes[0]` is the most urgent.

    `by_tier`: otherwise there is one lane for all. Changes cost O(log n).
    """

    def __init__(self, tiers: Tiers, bounds: TotalBounds, *, by_tier: bool) -> None:
        self._entries: dict[str, QueuedRequest] = {}
        if by_tier:
            self.lanes = tuple(Lane(tier, self._entries) for tier in tiers.all)
        else:
            self.lanes = (Lane(merged_tier(tiers), self._entries, by_key=False),)
        self.promotions = Promotions()
        self._by_tier = by_tier
        self._depths = [0] * len(tiers)
        self._bounds = Need(bounds.requests, bounds.tokens)
        self._expiry: SortedItems[str] = SortedItems()
        self._sequence = 0
        self._tokens = 0
        backlogs = [lane.backlog for lane in self.lanes]
        self._below = [backlogs[:index:-1] for index in range(len(backlogs))]

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
        return entry.rank if self._by_tier else 0

    def lane(self, entry: QueuedRequest) -> Lane:
        """Return the lane that `entry` belongs to."""
        return self.lanes[entry.rank if self._by_tier else 0]

    def depth(self, rank: int) -> int:
        """Return how many requests of that rank wait."""
        return self._depths[rank]

    def backlogged(self) -> list[bool]:
        """Return for each lane whether anything waits there."""
        return [lane.backlog.requests > 0 for lane in self.lanes]

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
            if lane.backlog.requests:
                floors += lane.tier.floor
        return floors

    def arrival(self, entry: QueuedRequest, wait: WaitEstimate | None, now: float) -> Arrival:
        """Return what `entry` meets at the door."""
        index = self.index(entry)
        lane = self.lanes[index]
        held = Need(len(self._entries), self._tokens)
        return Arrival(
            entry=entry,
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
        if self._by_tier and target_rank(entry) is not None:
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
        self.lane(entry).leave(entry)
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
        self.lane(entry).leave(entry)
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
        assert sum(lane.backlog.requests for lane in self.lanes) == len(self), "one is lost"
        assert len(self._expiry) <= len(self), "an expired request is left over"
        assert len(self.promotions) <= len(self), "a promotion is left over"
        for lane in self.lanes:
            lane.check_integrity()
