"""Who waits at the gateway, in which tier, and until when?

The lanes of all tiers with what spans them: the bound on everything together, the time limits, and
the work that may move up a tier to meet its deadline.
"""

from dataclasses import replace
from itertools import islice

from headway.core.admission import Arrival
from headway.core.backlog import MAX_EVICTIONS, QueuedRequest
from headway.core.expiry import Expiry
from headway.core.lane import Lane, merged_tier
from headway.core.need import Amount, shortage
from headway.core.promotion import Promotions, target_rank
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate


class Waiting:
    """The waiting requests of all tiers, each in its lane; `lanes[0]` is the most urgent.

    `bounds` are on all tiers together. `by_tier`: otherwise there is one lane for all. Changes cost
    O(log n) on average.
    """

    def __init__(self, tiers: Tiers, bounds: Amount, *, by_tier: bool) -> None:
        self._entries: dict[str, QueuedRequest] = {}
        if by_tier:
            self.lanes = tuple(Lane(tier, self._entries) for tier in tiers.all)
        else:
            self.lanes = (Lane(merged_tier(tiers), self._entries, by_key=False),)
        self.promotions = Promotions()
        self.backlogged = [False] * len(self.lanes)
        """For each lane whether anything waits there; callers only read it."""
        self.expiry = Expiry(len(self.lanes))
        self._promoted: list[dict[str, None]] = [{} for _ in self.lanes]
        """What was promoted into each lane and waits there, the newest last."""
        self._by_tier = by_tier
        self._bounds = bounds
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

    def depth(self, rank: int) -> int:
        """Return how many requests of that rank wait; linear where one lane is for all."""
        if self._by_tier:
            return self.lanes[rank].backlog.requests
        return sum(entry.rank == rank for entry in self._entries.values())

    def cost_above(self, index: int) -> float:
        """Return the predicted cost that waits in lanes more urgent than `index`."""
        return sum([lane.backlog.cost for lane in self.lanes[:index]])

    def floors_below(self, index: int) -> float:
        """Return the sum of the floors that less urgent lanes with work waiting hold."""
        below = self.lanes[index + 1 :]
        return sum([lane.tier.floor for lane in below if lane.backlog.requests])

    def arrival(self, entry: QueuedRequest, wait: WaitEstimate | None, now: float) -> Arrival:
        """Return what `entry` meets at the door."""
        index = self.index(entry)
        lane = self.lanes[index]
        tokens = sum([each.backlog.tokens for each in self.lanes])
        return Arrival(
            entry,
            wait,
            lane.expires_at(entry),
            lane.tier.queue_timeout_s is not None,
            lane.is_over_level(entry, now),
            lane.backlog,
            self._below[index],
            shortage(len(self._entries), tokens, entry.tokens, self._bounds),
        )

    def join(self, entry: QueuedRequest, expires_at: float | None) -> None:
        """Queue an admitted request that expires at the lane's `expires_at`."""
        index = self.index(entry)
        lane = self.lanes[index]
        self.backlogged[index] = True
        if self._by_tier and target_rank(entry) is not None:
            self.promotions.watch(entry, lane.cost_ahead(entry), lane.served, entry.arrival)
        lane.join(entry)
        if expires_at is not None:
            self.expiry.add(entry.request_id, index, expires_at)
        self._entries[entry.request_id] = entry

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
        before, after = self.lanes[entry.rank], self.lanes[rank]
        if after.backlog.shortage(moved):
            return False
        before.leave(entry)
        after.join(moved)
        self.backlogged[entry.rank] = before.backlog.requests > 0
        self.backlogged[rank] = True
        self._entries[request_id] = moved
        self._promoted[entry.rank].pop(request_id, None)
        if moved.promoted:
            self._promoted[rank][request_id] = None
        self.promotions.forget(request_id)
        return True

    def go_back(self, request_id: str, now: float) -> bool:
        """Let a promoted request wait in its own tier again; return whether it could."""
        entry = self._entries[request_id]
        return entry.promoted and self.move(request_id, entry.rank + 1, now)

    def send_back(self, entry: QueuedRequest, now: float) -> bool:
        """Make room for `entry` in its tier: the newest that were promoted into it go back.

        Returns whether any did; none does if some would not suffice.
        """
        promoted = self._promoted[self.index(entry)]
        need = self.lanes[self.index(entry)].backlog.shortage(entry)
        newest = list(islice(reversed(promoted), MAX_EVICTIONS)) if need else []
        if not newest or need.less(self._entries[each].tokens for each in newest):
            return False
        before = len(promoted)
        for each in newest:
            if not need or not self.go_back(each, now):
                break
            need = need.less([self._entries[each].tokens])
        return len(promoted) < before

    def beyond(self, cost: float) -> list[str]:
        """Return what is not among the first of `cost` in all, by strict priority. Linear."""
        gone: list[str] = []
        for lane in self.lanes:
            for entry in lane.in_order():
                cost -= entry.cost
                if cost < 0:
                    gone.append(entry.request_id)
        return gone

    def next_change(self) -> float | None:
        """Return when a request expires or has to be looked at; None: never."""
        expiry, look = self.expiry.first, self.promotions.next_look()
        if expiry is None:
            return look
        return expiry[0] if look is None else min(expiry[0], look)

    def _forget(self, entry: QueuedRequest, index: int) -> None:
        self.backlogged[index] = self.lanes[index].backlog.requests > 0
        request_id = entry.request_id
        del self._entries[request_id]
        # One that was promoted expires as what it was when it came.
        self.expiry.remove(request_id, index + entry.promoted)
        self._promoted[index].pop(request_id, None)
        self.promotions.forget(request_id)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        assert sum(lane.backlog.requests for lane in self.lanes) == len(self), "one is lost"
        limits = {k: self.lanes[self.index(e)].expires_at(e) for k, e in self._entries.items()}
        limited = [request_id for request_id, at in limits.items() if at is not None]
        assert sorted(self.expiry) == sorted(limited), "a time limit is lost, or left over"
        self.expiry.check_integrity()
        assert len(self.promotions) <= len(self), "a promotion is left over"
        promoted = {request_id for each in self._promoted for request_id in each}
        assert promoted == {k for k, e in self._entries.items() if e.promoted}, "one is not known"
        for backlogged, lane in zip(self.backlogged, self.lanes, strict=True):
            assert backlogged == (lane.backlog.requests > 0), f"{lane.tier.name} is empty, or not"
            lane.check_integrity()
