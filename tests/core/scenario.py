"""What does a dispatcher do over time, with slots that serve at a fixed speed?

A small shell around `Dispatcher` on a manual clock: the same loop as the gateway's, where a slot
takes `cost / speed` seconds for a request. Nothing polls: the clock jumps from event to event.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from headway.clock import ManualClock
from headway.core.admission import Shed
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch, WaitUntil
from headway.core.dispatch import Dispatcher, Policy
from headway.core.fairness import FairQueue
from headway.core.tier import DEFAULT_TIERS, Tiers

PATIENT = Tiers(tuple(replace(tier, queue_timeout_s=None) for tier in DEFAULT_TIERS))
"""The default tiers without queue time limits."""
NO_FLOORS = Tiers(tuple(replace(tier, floor=0.0) for tier in PATIENT.all))

INTEGRITY_EVERY = 64
"""Checked at each event whose number is a multiple, because checking is linear."""


def bounded(tiers: Tiers, *, max_queued: int, max_queued_tokens: int = 10**9) -> Tiers:
    """Return the tiers with these bounds."""
    return Tiers(
        tuple(
            replace(tier, max_queued=max_queued, max_queued_tokens=max_queued_tokens)
            for tier in tiers.all
        )
    )


def request(
    request_id: str,
    rank: int = 1,
    tenant: str = "a",
    *,
    cost: float = 8.0,
    weight: float = 1.0,
    arrival: float = 0.0,
    tokens: int | None = None,
    deadline: float | None = None,
) -> QueuedRequest:
    """Return a request whose tokens are its cost unless given."""
    return QueuedRequest(
        request_id=request_id,
        rank=rank,
        tenant=tenant,
        weight=weight,
        cost=cost,
        tokens=int(cost) if tokens is None else tokens,
        arrival=arrival,
        deadline=deadline,
    )


def pop(queue: FairQueue) -> str | None:
    """Take out the next request and return it, with nothing counted for it."""
    request_id = queue.send()
    if request_id is not None:
        queue.release(request_id)
    return request_id


@dataclass(frozen=True)
class Arrival:
    """A request that comes at its `arrival`, and may be cancelled or cost other than predicted."""

    request: QueuedRequest
    cancel_at: float | None = None
    cost_actual: float | None = None


@dataclass
class Run:
    """What happened: (time, what, request id), in order."""

    log: list[tuple[float, str, str]] = field(default_factory=list)

    def note(self, now: float, what: str, request_id: str) -> None:
        """Add a line."""
        self.log.append((now, what, request_id))

    def times(self, what: str) -> dict[str, float]:
        """Return when `what` happened to which request."""
        return {request_id: at for at, happened, request_id in self.log if happened == what}

    def order(self, what: str = "dispatch") -> list[str]:
        """Return the requests to which `what` happened, in order."""
        return [request_id for _, happened, request_id in self.log if happened == what]


def play(
    arrivals: Iterable[Arrival],
    *,
    tiers: Tiers = PATIENT,
    policy: Policy = "qos",
    slots: int = 1,
    speed: float = 1.0,
    until: float = float("inf"),
) -> Run:
    """Play the arrivals to the end, or to `until`, checking integrity now and then."""
    return _Shell(Dispatcher(tiers, Prices(), policy=policy), slots, speed).play(arrivals, until)


class _Shell:
    def __init__(self, dispatcher: Dispatcher, slots: int, speed: float) -> None:
        self.dispatcher = dispatcher
        self.slots = slots
        self.speed = speed
        self.clock = ManualClock()
        self.run = Run()
        self.arrivals: dict[str, Arrival] = {}
        self.number = 0
        self.events: list[tuple[float, int, str, str]] = []

    def play(self, arrivals: Iterable[Arrival], until: float) -> Run:
        for arrival in arrivals:
            self.arrivals[arrival.request.request_id] = arrival
            self.schedule(arrival.request.arrival, "arrive", arrival.request.request_id)
            if arrival.cancel_at is not None:
                self.schedule(arrival.cancel_at, "cancel", arrival.request.request_id)
        while self.events and self.events[0][0] <= until:
            at, _, what, request_id = heappop(self.events)
            self.clock.advance(at - self.clock.now())
            self.happen(what, request_id)
            # Whatever happens at one instant happens before anything leaves.
            if not (self.events and self.events[0][0] == at):
                self.pump()
            if self.number % INTEGRITY_EVERY == 0:
                self.dispatcher.check_integrity()
        self.dispatcher.check_integrity()
        return self.run

    def schedule(self, at: float, what: str, request_id: str) -> None:
        self.number += 1
        heappush(self.events, (at, self.number, what, request_id))

    def happen(self, what: str, request_id: str) -> None:
        now = self.clock.now()
        arrival = self.arrivals.get(request_id)
        if what == "arrive" and arrival is not None:
            self.arrive(arrival.request, now)
        elif what == "cancel" and self.dispatcher.remove(request_id):
            self.run.note(now, "cancel", request_id)
        elif what == "finish" and arrival is not None:
            self.slots += 1
            self.dispatcher.settle(request_id, _actual(arrival), now)
            self.run.note(now, "finish", request_id)

    def arrive(self, entry: QueuedRequest, now: float) -> None:
        decision = self.dispatcher.enqueue(entry, now)
        if isinstance(decision, Shed):
            self.run.note(now, "shed", entry.request_id)
            return
        self.run.note(now, "admit", entry.request_id)
        for victim in decision.evicted:
            self.run.note(now, "evict", victim)

    def pump(self) -> None:
        now = self.clock.now()
        for request_id in self.dispatcher.expired(now):
            self.run.note(now, "expire", request_id)
        while isinstance(decision := self.dispatcher.next(now, self.free()), Dispatch):
            self.slots -= 1
            self.run.note(now, "dispatch", decision.request_id)
            seconds = _actual(self.arrivals[decision.request_id]) / self.speed
            self.schedule(now + seconds, "finish", decision.request_id)
        if isinstance(decision, WaitUntil):
            self.schedule(decision.at, "wake", "")

    def free(self) -> Sequence[int]:
        return (self.slots,) * 3


def _actual(arrival: Arrival) -> float:
    return arrival.request.cost if arrival.cost_actual is None else arrival.cost_actual
