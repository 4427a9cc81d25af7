"""Does anything leave the queue now, and if not, when should I ask again?

Strict priority with floors across tiers; inside a tier the lane decides (`lane.py`). First come,
first served is the same code with one lane of one flow.
"""

from collections.abc import Sequence
from typing import Literal

from headway.core.admission import Admit, Shed
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Decision, Dispatch, Idle, WaitUntil
from headway.core.drain import DrainRate
from headway.core.floors import FloorLedger
from headway.core.heap import IndexedHeap
from headway.core.lane import Lane, Sent, merged_tier
from headway.core.tier import Tiers

__all__ = [
    "Admit",
    "Credits",
    "Decision",
    "Dispatch",
    "Dispatcher",
    "Idle",
    "Policy",
    "QueuedRequest",
    "Shed",
    "WaitUntil",
]

Credits = Sequence[int]
"""For each rank, how many more requests may be sent now."""
Policy = Literal["qos", "fcfs"]


class Dispatcher:
    """All that waits at a gateway, and all that was sent and has not ended.

    A request leaves the queue exactly once: dispatched, expired, removed, or evicted by an arrival.
    What it was predicted to cost counts until `settle` replaces it. Every call costs O(log n).
    """

    def __init__(self, tiers: Tiers, prices: Prices, *, policy: Policy = "qos") -> None:
        self._fcfs = policy == "fcfs"
        if self._fcfs:
            self._lanes = [Lane(merged_tier(tiers), single_flow=True)]
        else:
            self._lanes = [Lane(tier) for tier in tiers.all]
        # The price of one token: a tier is owed as soon as its deficit covers its next request.
        self._floors = FloorLedger([lane.tier.floor for lane in self._lanes], prices.prefill)
        self._depths = [0] * len(tiers)
        self._queued: dict[str, QueuedRequest] = {}
        self._sent: dict[str, Sent] = {}
        self._expiry: IndexedHeap[str] = IndexedHeap()
        self._drain = DrainRate()
        self._sequence = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._queued)

    @property
    def num_sent(self) -> int:
        """How many requests were dispatched and not settled."""
        return len(self._sent)

    @property
    def drain_rate(self) -> float | None:
        """Measured cost per second under saturation; None while unknown."""
        return self._drain.rate

    def queue_depth(self, rank: int) -> int:
        """Return how many requests of that rank wait."""
        return self._depths[rank]

    def queued_tokens(self, rank: int) -> int:
        """Return the predicted tokens waiting in the tier; under fcfs, in all tiers."""
        return self._lanes[0 if self._fcfs else rank].queued_tokens

    def predicted_wait_s(self, entry: QueuedRequest) -> float | None:
        """Return how long `entry` would wait if it arrived now, in seconds; None while unknown."""
        return self._lane(entry).predicted_wait_s(entry, self._cost_above(entry), self._drain.rate)

    def enqueue(self, entry: QueuedRequest, now: float) -> Admit | Shed:
        """Queue a request, or say why not. Raises ValueError for an id that waits or was sent."""
        if entry.request_id in self._queued or entry.request_id in self._sent:
            raise ValueError(f"{entry.request_id} is here already")
        lane = self._lane(entry)
        decision = lane.admit(entry, now, self._cost_above(entry), self._drain.rate)
        if isinstance(decision, Shed):
            return decision
        for request_id in decision.evicted:
            self.remove(request_id)
        lane.join(entry)
        expires_at = lane.expires_at(entry)
        if expires_at is not None:
            self._sequence += 1
            self._expiry.push(entry.request_id, expires_at, self._sequence)
        self._queued[entry.request_id] = entry
        self._depths[entry.rank] += 1
        return decision

    def next(self, now: float, free: Credits) -> Decision:
        """Return what leaves now; a dispatched request counts as sent from here on.

        1. `WaitUntil` with the next expiry when that has come (`expired(now)` goes first), or
           when nothing may leave.
        2. Otherwise `Dispatch` whenever a tier has both a request and a credit. It names the first
           request of the most urgent such tier, or of one whose floor owes it that request.
        3. `Idle` when nothing may leave and nothing that waits can expire.
        """
        upcoming = self._expiry.peek()
        if upcoming is not None and upcoming[0] <= now:
            return WaitUntil(upcoming[0])
        rank = self._next_rank(free)
        if rank is None:
            return Idle() if upcoming is None else WaitUntil(upcoming[0])
        entry = self._lanes[rank].send()
        self._forget(entry)
        claim = self._floors.deficit(rank)
        self._account(rank, entry.cost, [credit <= 0 for credit in free])
        self._sent[entry.request_id] = Sent(entry, claim - self._floors.deficit(rank))
        return Dispatch(entry.request_id)

    def expired(self, now: float) -> list[str]:
        """Take out and return the requests whose time limit has passed, earliest first."""
        gone: list[str] = []
        while (upcoming := self._expiry.peek()) and upcoming[0] <= now:
            self.remove(upcoming[2])
            gone.append(upcoming[2])
        return gone

    def remove(self, request_id: str) -> bool:
        """Take a request out of the queue, at no cost; return whether it waited."""
        entry = self._queued.get(request_id)
        if entry is None:
            return False
        self._lane(entry).leave(request_id)
        self._forget(entry)
        return True

    def settle(self, request_id: str, cost_actual: float, now: float) -> bool:
        """Replace a sent request's prediction by its actual cost; return whether it was sent.

        A second call for the same request does nothing.
        """
        sent = self._sent.pop(request_id, None)
        if sent is None:
            return False
        entry, rank = sent.entry, self._rank(sent.entry)
        self._lane(entry).settle(entry, cost_actual)
        over = entry.cost - cost_actual
        if over <= 0:
            self._account(rank, -over, ())
        else:
            self._floors.refund(rank, over, cost_actual, sent.paid, self._backlogged())
        self._drain.settle(cost_actual, now, saturated=bool(self._queued))
        return True

    def _rank(self, entry: QueuedRequest) -> int:
        return 0 if self._fcfs else entry.rank

    def _lane(self, entry: QueuedRequest) -> Lane:
        return self._lanes[self._rank(entry)]

    def _cost_above(self, entry: QueuedRequest) -> float:
        return sum(lane.queued_cost for lane in self._lanes[: self._rank(entry)])

    def _next_rank(self, free: Credits) -> int | None:
        ready = [len(lane) > 0 and free[rank] > 0 for rank, lane in enumerate(self._lanes)]
        for rank in self._floors.owed():
            head = self._lanes[rank].head()
            # A floor saves up for its next request, however large, and so is never overdrawn.
            if ready[rank] and head and self._floors.deficit(rank) >= head.cost:
                return rank
        return ready.index(True) if any(ready) else None

    def _forget(self, entry: QueuedRequest) -> None:
        del self._queued[entry.request_id]
        self._expiry.remove(entry.request_id)
        self._depths[entry.rank] -= 1

    def _account(self, rank: int, cost: float, blocked: Sequence[bool]) -> None:
        served = [0.0] * len(self._lanes)
        served[rank] = cost
        self._floors.settle(served, self._backlogged(), blocked)

    def _backlogged(self) -> list[bool]:
        return [len(lane) > 0 for lane in self._lanes]

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        assert sum(self._depths) == len(self._queued), "the depths do not add up"
        assert sum(len(lane) for lane in self._lanes) == len(self._queued), "one is lost"
        assert not self._queued.keys() & self._sent.keys(), "a request waits and was sent"
        assert len(self._expiry) <= len(self._queued), "an expired request is left over"
        for lane in self._lanes:
            lane.check_integrity()
