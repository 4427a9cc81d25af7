"""Does anything leave the queue now, and if not, when should I ask again?

Strict priority with floors across tiers; inside a tier the lane decides (`lane.py`). First come,
first served is the same code with one lane of one flow.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from headway.core.admission import Admit, Shed, ShedReason, admit
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Decision, Dispatch, Idle, WaitUntil
from headway.core.floors import FloorLedger
from headway.core.forecast import Forecaster
from headway.core.lane import Sent
from headway.core.need import UNBOUNDED, Amount
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate
from headway.core.waiting import Waiting

Credits = Sequence[int]
"""For each rank, how many more requests may be sent now."""
Policy = Literal["qos", "fcfs"]
MAX_EXPIRED = 256
"""Of more, `next` asks for the others at once: many hold up nobody else."""


class Dispatcher:
    """All that waits at a gateway, and all that was sent and has not ended.

    A request leaves the queue exactly once: dispatched, expired, removed, or evicted by an arrival.
    What it was predicted to cost counts until `settle` replaces it. Calls cost O(log n) on average.
    """

    def __init__(
        self,
        tiers: Tiers,
        prices: Prices,
        policy: Policy = "qos",
        bounds: Amount = UNBOUNDED,
    ) -> None:
        self._by_tier = policy != "fcfs"
        self._waiting = Waiting(tiers, bounds, by_tier=self._by_tier)
        # The price of one token: a tier is owed as soon as its deficit covers its next request.
        floors = [lane.tier.floor for lane in self._waiting.lanes]
        self._floors = FloorLedger(floors, prices.prefill)
        self._sent: dict[str, Sent] = {}
        self._forecast = Forecaster(self._waiting, len(tiers))
        self.wait_counts = self._forecast.counts

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    @property
    def num_sent(self) -> int:
        """How many requests were dispatched and not settled."""
        return len(self._sent)

    @property
    def drain_rate(self) -> float | None:
        """Measured cost per second under saturation; None while unknown."""
        return self._forecast.drain.rate

    def queue_depth(self, rank: int) -> int:
        """Return how many of that rank wait, promoted ones where they wait now; linear for fcfs."""
        return self._waiting.depth(rank)

    def queued_tokens(self, rank: int) -> int:
        """Return the predicted tokens waiting in the tier; under fcfs, in all tiers."""
        return self._waiting.lanes[rank if self._by_tier else 0].backlog.tokens

    def predicted_wait(self, entry: QueuedRequest, now: float) -> WaitEstimate | None:
        """Return how long `entry` would wait if it arrived now; None while unknown."""
        return self._forecast.wait(self._seen(entry), now)[1]

    def enqueue(self, entry: QueuedRequest, now: float, *, again: bool = False) -> Admit | Shed:
        """Queue a request, or say why not; `again`: it was accepted before, and lost its node.

        Raises ValueError for an id that waits or was sent.
        """
        if entry.request_id in self._waiting or entry.request_id in self._sent:
            raise ValueError(f"{entry.request_id} is here already")
        entry = self._seen(entry)
        told = self._forecast.wait(entry, now)
        arrival = self._waiting.arrival(entry, told[1], now)
        decision = admit(arrival, now, again=again)
        gives_way = isinstance(decision, Admit) or decision.reason is ShedReason.FULL
        if gives_way and not again and self._waiting.send_back(entry, now):
            decision = admit(self._waiting.arrival(entry, told[1], now), now)
        if isinstance(decision, Shed):
            return decision
        if not arrival.excess:
            evicted = [gone for gone in decision.evicted if not self._waiting.go_back(gone, now)]
            decision = decision._replace(evicted=tuple(evicted))
        for request_id in decision.evicted:
            self.remove(request_id, now)
        self._forecast.joined(entry, told, now)
        self._waiting.join(entry, arrival.expires_at)
        return decision

    def next(self, now: float, free: Credits) -> Decision:
        """Return what leaves now; a dispatched request counts as sent from here on.

        `Dispatch` whenever a tier has both a request and a credit: the first request of the most
        urgent such tier, or of one whose floor owes it that request. Otherwise `WaitUntil` the next
        expiry or promotion, or `Idle` when there is none. What has expired has to leave first.
        """
        self._forecast.free = free
        change = self._waiting.next_change()
        if change is not None and change <= now:
            if (expiry := self._waiting.expiry.first) and expiry[0] <= now:
                return WaitUntil(expiry[0])
            change = self._promote(now)
        index = self._next_lane(free)
        if index is None:
            return Idle() if change is None else WaitUntil(change)
        entry = self._waiting.send(index, now)
        self._forecast.served(entry.request_id, now)
        floors = self._floors
        claim = floors.deficits[index]
        blocked = tuple([credit <= 0 for credit in free]) if min(free) <= 0 else ()
        floors.serve(index, entry.cost, self._waiting.backlogged, blocked)
        self._sent[entry.request_id] = Sent(entry, claim - floors.deficits[index], now, blocked)
        return Dispatch(entry.request_id, entry.rank if entry.promoted else None)

    def expired(self, now: float) -> list[str]:
        """Take out and return up to `MAX_EXPIRED` whose time limit has passed, earliest first."""
        gone: list[str] = []
        expiry = self._waiting.expiry
        while len(gone) < MAX_EXPIRED and (upcoming := expiry.first) and upcoming[0] <= now:
            self.remove(upcoming[2], now)
            gone.append(upcoming[2])
        return gone

    def remove(self, request_id: str, now: float = float("-inf")) -> bool:
        """Take a request out of the queue, at no cost; return whether it waited.

        With `now`, a wait that was longer than its estimate counts as such.
        """
        self._forecast.left(request_id, now)
        return self._waiting.remove(request_id)

    def settle(self, request_id: str, cost: float | None, now: float) -> bool:
        """Replace a sent request's prediction by its actual cost; return whether it was sent.

        None: nobody knows it, so the prediction stays. A second call does nothing.
        """
        sent = self._sent.pop(request_id, None)
        if sent is None:
            return False
        entry, waiting = sent.entry, self._waiting
        backlogged, index = waiting.backlogged, waiting.index(entry)
        cost_actual = entry.cost if cost is None else cost
        waiting.lanes[index].settle(entry, cost_actual)
        if (over := entry.cost - cost_actual) <= 0:
            self._floors.serve(index, -over, backlogged, sent.blocked)
        else:
            self._floors.refund(index, over, cost_actual, sent.paid, backlogged, sent.blocked)
        self._forecast.settled(cost_actual, now - sent.at, now, known=cost is not None)
        return True

    def not_served_within(self, seconds: float) -> list[str]:
        """Return what waits beyond what `seconds` suffice for, least urgent last. Linear."""
        return [] if self.drain_rate is None else self._waiting.beyond(seconds * self.drain_rate)

    def _promote(self, now: float) -> float | None:
        promotions = self._waiting.promotions
        for request_id, plan in promotions.due(now):
            entry = self._waiting[request_id]
            rank = entry.rank - 1
            laxity_s = self._forecast.laxity_s(entry, plan, now)
            if laxity_s <= plan.margin_s and self._waiting.move(request_id, rank, now):
                self._forecast.moved(entry, rank, now)
            else:
                promotions.put_off(request_id, laxity_s, now)
        return self._waiting.next_change()

    def _seen(self, entry: QueuedRequest) -> QueuedRequest:
        return entry if self._by_tier else replace(entry, tenant="", weight=1.0)

    def _next_lane(self, free: Credits) -> int | None:
        lanes = self._waiting.lanes
        for index in self._floors.owed():
            head = lanes[index].head() if free[index] > 0 else None
            # A floor saves up for its next request, however large, and so is never overdrawn.
            if head and self._floors.deficits[index] >= head.cost:
                return index
        for index, waits in enumerate(self._waiting.backlogged):
            if waits and free[index] > 0:
                return index
        return None

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        self._waiting.check_integrity()
        assert not any(request_id in self._waiting for request_id in self._sent), "waits, yet sent"
        self._forecast.check_integrity()
