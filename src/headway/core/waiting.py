"""Who waits at the gateway, in which tier, and until when?

The lanes of all tiers with what spans them: the bound on everything together, the time limits, and
the work that may move up a tier to meet its deadline.
"""

from dataclasses import dataclass, replace

from headway.core.admission import Arrival
from headway.core.backlog import QueuedRequest
from headway.core.expiry import Expiry
from headway.core.lane import Lane, merged_tier
from headway.core.need import Need, shortage
from headway.core.promotion import Promotions, target_rank
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

    `by_tier`: otherwise there is one lane for all. Changes cost O(log n) on average.
    """

    def __init__(self, tiers: Tiers, bounds: TotalBounds, *, by_tier: bool) -> None:
        self._entries: dict[str, QueuedRequest] = {}
        if by_tier:
            self.lanes = tuple(Lane(tier, self._entries) for tier in tiers.all)
        else:
            self.lanes = (Lane(merged_tier(tiers), self._entries, by_key=False),)
        self.promotions = Promotions()
        self.backlogged = [False] * len(self.lanes)
        """For each lane whether anything waits there; callers only read it."""
        self._by_tier = by_tier
        self._depths = [0] * len(tiers)
        self._bounds = Need(bounds.requests, bounds.tokens)
        self._expiry = Expiry(len(self.lanes))
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

    def cost_above(self, index: int) -> float:
        """Return the predicted cost that waits in lanes more urgent than `index`."""
        cost = 0.0
        for lane in self.lanes[:index]:
            cost += lane.backlog.cost
        return cost

    def floors_below(self, index: int) -> float:
        """Return the sum of the floors that less urgent lanes with work waiting hold."""
        floors = 0.0
        for below in range(index + 1, len(self.lanes)):
            if self.backlogged[below]:
                floors += self.lanes[below].tier.floor
        return floors

    def arrival(self, entry: QueuedRequest, wait: WaitEstimate | None, now: float) -> Arrival:
        """Return what `entry` meets at the door."""
        index = self.index(entry)
        lane = self.lanes[index]
        return Arrival(
            entry,
            wait,
            lane.expires_at(entry),
            lane.tier.queue_timeout_s is not None,
            lane.is_over_level(entry, now),
            lane.backlog,
            self._below[index],
            shortage(len(self._entries), self._tokens, entry.tokens, self._bounds),
        )

    def join(self, entry: QueuedRequest, expires_at: float | None) -> None:
        """Queue an admitted request that expires at the lane's `expires_at`."""
        index = self.index(entry)
        lane = self.lanes[index]
        self.backlogged[index] = True
        if entry.deadline is not None and self._by_tier and target_rank(entry) is not None:
            self.promotions.watch(entry, lane.cost_ahead(entry), lane.served, entry.arrival)
        lane.join(entry)
        if expires_at is not None:
            self._expiry.add(entry.request_id, index, expires_at)
        self._entries[entry.request_id] = entry
        self._depths[entry.rank] += 1
        self._tokens += entry.tokens

    def send(self, index: int, now: float) -> QueuedRequest:
        """Take out the request of a lane that leaves next."""
        entry = self.lanes[index].send(now)
        self._forget(entry, index)
        return entry

    def remove(self, request_id: str) -> bool:
        """Take a request out unserved; return whether it waited."""
        entry = self._entries.get(request_id)
        if entry is None:
            return False
        index = self.index(entry)
        self.lanes[index].leave(entry)
        self._forget(entry, index)
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
        self.backlogged[entry.rank] = self.lane(entry).backlog.requests > 0
        self.backlogged[rank] = True
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
        first = self._expiry.first
        return None if first is None else (first[0], first[2])

    def next_change(self) -> float | None:
        """Return when a request expires or has to be looked at; None: never."""
        expiry, look = self._expiry.first, self.promotions.next_look()
        if expiry is None:
            return look
        return expiry[0] if look is None else min(expiry[0], look)

    def _forget(self, entry: QueuedRequest, index: int) -> None:
        self.backlogged[index] = self.lanes[index].backlog.requests > 0
        request_id = entry.request_id
        del self._entries[request_id]
        # One that was promoted expires as what it was when it came.
        self._expiry.remove(request_id, index + entry.promoted)
        if entry.deadline is not None:
            self.promotions.forget(request_id)
        self._depths[entry.rank] -= 1
        self._tokens -= entry.tokens

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        assert sum(self._depths) == len(self), "the depths do not add up"
        assert sum(lane.backlog.tokens for lane in self.lanes) == self._tokens, "tokens are lost"
        assert sum(lane.backlog.requests for lane in self.lanes) == len(self), "one is lost"
        limited = [k for k, e in self._entries.items() if self.lane(e).expires_at(e) is not None]
        assert sorted(self._expiry) == sorted(limited), "a time limit is lost, or left over"
        self._expiry.check_integrity()
        assert len(self.promotions) <= len(self), "a promotion is left over"
        for backlogged, lane in zip(self.backlogged, self.lanes, strict=True):
            assert backlogged == (lane.backlog.requests > 0), f"{lane.tier.name} is empty, or not"
            lane.check_integrity()
