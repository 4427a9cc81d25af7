"""How honest are estimates of waits, on five kinds of load?

A dispatcher on a manual clock before slots that serve at a fixed speed, give or take. Each wait is
compared with what would have been told at its arrival.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import exp
from random import Random

from headway.core.admission import Shed
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch, WaitUntil
from headway.core.dispatch import Dispatcher
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate

SLOTS = 8
SPEED = 100.0
"""Cost units per second of one slot."""
CAPACITY = SLOTS * SPEED
MEAN_COST = 200.0
PER_S = CAPACITY / MEAN_COST
"""Requests of mean cost that are served per second."""
WARM_UP = 0.2
"""Share of the waits, the first ones, that do not count."""


@dataclass(frozen=True)
class Job:
    """A request and what it turns out to cost."""

    entry: QueuedRequest
    cost_actual: float


@dataclass(frozen=True)
class Wait:
    """A wait that is over: what was told, and what came. `served` is false for one that left."""

    rank: int
    told: WaitEstimate
    wait_s: float
    served: bool

    @property
    def counts(self) -> bool:
        """Whether it says something: one that left within its p90 does not."""
        return self.served or self.wait_s > self.told.p90_s


@dataclass
class Waits:
    """All waits of one run, in the order of their ends."""

    all: list[Wait] = field(default_factory=list)
    num_shed: int = 0

    def judged(self, rank: int | None = None) -> list[Wait]:
        """Return those that count, after the warm-up, of one tier or all."""
        judged = [wait for wait in self.all if wait.counts]
        judged = judged[int(WARM_UP * len(judged)) :]
        return [wait for wait in judged if rank is None or wait.rank == rank]

    def within_p90(self, rank: int | None = None) -> float:
        """Return the share within the p90."""
        judged = self.judged(rank)
        return sum(wait.wait_s <= wait.told.p90_s for wait in judged) / max(1, len(judged))

    def within_p50(self, rank: int | None = None) -> float:
        """Return the share within the p50."""
        judged = self.judged(rank)
        return sum(wait.wait_s <= wait.told.p50_s for wait in judged) / max(1, len(judged))

    def excess(self) -> float:
        """Return the mean p90 over the mean wait: how much was told beyond what came."""
        judged = self.judged()
        return sum(w.told.p90_s for w in judged) / sum(w.wait_s for w in judged)


class _Server:
    """Slots behind a dispatcher, on a clock that jumps from event to event."""

    def __init__(self, tiers: Tiers, seed: int) -> None:
        self.flow = Dispatcher(tiers, Prices())
        self.random = Random(seed)
        self.slots = SLOTS
        self.now = 0.0
        self.waits = Waits()
        self.told: dict[str, tuple[int, WaitEstimate, float]] = {}
        self.actual: dict[str, float] = {}
        self.finishes: list[tuple[float, str]] = []

    def arrive(self, job: Job) -> None:
        self.pass_time(job.entry.arrival)
        wait = self.flow.predicted_wait(job.entry, self.now)
        decision = self.flow.enqueue(job.entry, self.now)
        if isinstance(decision, Shed):
            self.waits.num_shed += 1
            return
        self.actual[job.entry.request_id] = job.cost_actual
        for gone in decision.evicted:
            self.end(gone, served=False)
        if wait is not None and wait.p90_s > 0:
            self.told[job.entry.request_id] = (job.entry.rank, wait, self.now)
        self.pump()

    def pass_time(self, until: float) -> None:
        """Let everything happen that is due by then."""
        while True:
            wake = self.pump()
            at = min(wake, self.finishes[0][0] if self.finishes else until)
            if at >= until:
                self.now = until
                return
            self.now = at
            while self.finishes and self.finishes[0][0] <= at:
                _, request_id = heappop(self.finishes)
                self.slots += 1
                self.flow.settle(request_id, self.actual.pop(request_id), at)

    def pump(self) -> float:
        """Let leave what may, and return when something is due in the queue."""
        for gone in self.flow.expired(self.now):
            self.end(gone, served=False)
        while isinstance(decision := self.flow.next(self.now, (self.slots,) * 3), Dispatch):
            self.slots -= 1
            self.end(decision.request_id, served=True)
            service_s = self.actual[decision.request_id] / SPEED * self.random.uniform(0.8, 1.2)
            heappush(self.finishes, (self.now + service_s, decision.request_id))
        return decision.at if isinstance(decision, WaitUntil) else float("inf")

    def end(self, request_id: str, *, served: bool) -> None:
        rank, told, since = self.told.pop(request_id, (0, None, self.now))
        if told is not None and self.now > since:
            self.waits.all.append(Wait(rank, told, self.now - since, served))


def run(jobs: Iterator[Job], seed: int, tiers: Tiers | None = None) -> Waits:
    """Serve the jobs, given in order of arrival, until the last has arrived."""
    server = _Server(Tiers() if tiers is None else tiers, seed)
    for job in jobs:
        server.arrive(job)
    return server.waits


Draw = Callable[[float], tuple[float, int, str, float]]
"""From the time: how many arrive per second then, and the next one's rank, tenant and weight."""


def _jobs(
    random: Random,
    seconds: float,
    draw: Draw,
    *,
    spread: float = 0.6,
    prediction: Callable[[float], float] = lambda cost: cost,
) -> Iterator[Job]:
    """Yield jobs for so long. Costs are log-normal around `MEAN_COST`, of deviation `spread`.

    `prediction` says what is foreseen of a cost.
    """
    now = 0.0
    for number in count():
        rate, rank, tenant, weight = draw(now)
        now += random.expovariate(rate)
        if now > seconds:
            return
        cost = MEAN_COST * exp(random.gauss(-spread * spread / 2, spread))
        predicted = prediction(cost)
        entry = QueuedRequest(
            request_id=f"r{number}",
            rank=rank,
            tenant=tenant,
            weight=weight,
            cost=predicted,
            tokens=int(predicted) + 1,
            arrival=now,
        )
        yield Job(entry, cost)


def steady_overload(random: Random) -> Iterator[Job]:
    """Three tenants of one tier ask for a tenth more than can be served, without end."""
    return _jobs(random, 3000, lambda now: (1.1 * PER_S, 1, random.choice("abc"), 1.0))


def bursts(random: Random) -> Iterator[Job]:
    """Half the capacity, and three times the capacity for 20 s in each 200 s."""

    def draw(now: float) -> tuple[float, int, str, float]:
        rank = random.choices((0, 1, 2), (1, 4, 2))[0]
        load = 3.0 if now % 200 < 20 else 0.5
        return load * PER_S, rank, random.choice("abcde"), 1.0

    return _jobs(random, 4000, draw)


def many_tenants(random: Random) -> Iterator[Job]:
    """Sixty tenants of weights 1 to 4, a few of which send most; together a little too much."""
    names = [f"t{number}" for number in range(60)]
    shares = [1 / (1 + number) for number in range(60)]

    def draw(now: float) -> tuple[float, int, str, float]:
        tenant = random.choices(names, shares)[0]
        return 1.05 * PER_S, 2, tenant, 1.0 + int(tenant[1:]) % 4

    return _jobs(random, 3000, draw)


def critical_above_bulk(random: Random) -> Iterator[Job]:
    """Critical takes a load that swings between a quarter and three quarters; bulk the rest."""

    def draw(now: float) -> tuple[float, int, str, float]:
        critical = 0.75 if now % 300 < 150 else 0.25
        rank = 0 if random.random() < critical / (critical + 0.45) else 2
        return (critical + 0.45) * PER_S, rank, random.choice("ab"), 1.0

    return _jobs(random, 4000, draw)


def wrong_predictions(random: Random) -> Iterator[Job]:
    """Lengths vary widely, and half of the true mean is foreseen of each, whatever it will be."""
    return _jobs(
        random,
        4000,
        lambda now: (1.0 * PER_S, 1 + int(random.random() < 0.3), random.choice("abcd"), 1.0),
        spread=1.2,
        prediction=lambda cost: MEAN_COST / 2,
    )


SCENARIOS: dict[str, Callable[[Random], Iterator[Job]]] = {
    "steady overload": steady_overload,
    "bursts": bursts,
    "many tenants": many_tenants,
    "critical above bulk": critical_above_bulk,
    "wrong predictions": wrong_predictions,
}


def waits_of(scenario: str, seed: int) -> Waits:
    """Return the waits of a scenario."""
    return run(SCENARIOS[scenario](Random(seed)), seed + 1)
