"""Does the fair queue equal the virtual token counter?

M13. `Vtc` is written from the paper (OSDI'24, algorithm 2), for these tests only: a counter for
each client, kept for ever, and linear searches. Where headway differs on purpose, a subclass does,
so that these two differences are all there are; `docs/policies.md` says why.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from headway.core.fairness import FairQueue
from tests.core.scenario import pop

PREFILL, DECODE = 1.0, 2.0


@dataclass(frozen=True)
class Request:
    """A request in the line of its tenant; `number` is its place in the order of arrival."""

    number: int
    tenant: str
    cost: float

    @property
    def request_id(self) -> str:
        """Its id."""
        return f"{self.tenant}{self.number}"


@dataclass
class Vtc:
    """Plain VTC. Ties, of which the paper says nothing, go to whose request arrived first."""

    weights: dict[str, float]
    counters: dict[str, float] = field(default_factory=dict)
    queue: list[Request] = field(default_factory=list)

    def lowest(self) -> float | None:
        """Return the lowest counter of those who have something waiting."""
        return min((self.counters[r.tenant] for r in self.queue), default=None)

    def push(self, request: Request) -> None:
        """Lift a client that has nothing waiting to the lowest of those who have."""
        counter = self.counters.get(request.tenant, 0.0)
        if all(r.tenant != request.tenant for r in self.queue):
            counter = max(counter, self.level())
        self.counters[request.tenant] = counter
        self.queue.append(request)

    def level(self) -> float:
        """Return what newcomers are lifted to."""
        lowest = self.lowest()
        return 0.0 if lowest is None else lowest

    def pop(self) -> Request:
        """Take the oldest request of the client with the lowest counter, and charge its prompt."""
        oldest = {r.tenant: r.number for r in reversed(self.queue)}
        tenant = min(oldest, key=lambda name: (self.counters[name], oldest[name]))
        request = next(r for r in self.queue if r.tenant == tenant)
        self.queue.remove(request)
        self.charge(tenant, request.cost)
        return request

    def charge(self, tenant: str, cost: float) -> None:
        """Count service."""
        self.counters[tenant] = self.counters.get(tenant, 0.0) + cost / self.weights[tenant]

    def remove(self, request: Request) -> None:
        """Forget a request that is cancelled."""
        self.queue.remove(request)


@dataclass
class StartTimeVtc(Vtc):
    """VTC with the two rules of start-time fair queueing that headway has instead.

    When nobody waits, everybody starts level with the one who was served most. And what a client is
    given while it has nothing waiting counts from the level on, not from where its counter stands.
    """

    virtual_time: float = 0.0

    def level(self) -> float:
        """Never moves back."""
        lowest = self.lowest()
        highest = max(self.counters.values(), default=0.0)
        self.virtual_time = max(self.virtual_time, highest if lowest is None else lowest)
        return self.virtual_time

    def pop(self) -> Request:
        """Note the level on the way."""
        self.level()
        return super().pop()

    def charge(self, tenant: str, cost: float) -> None:
        """Start at the level."""
        counter = max(self.counters.get(tenant, 0.0), self.virtual_time)
        self.counters[tenant] = counter + cost / self.weights[tenant]


TENANTS = "abcd"
Event = tuple[str, int, int]
PUSHES = st.tuples(st.just("push"), st.integers(0, 3), st.integers(1, 40))
POPS = st.tuples(st.just("pop"), st.just(0), st.just(0))
DECODES = st.tuples(st.just("decode"), st.integers(0, 9), st.just(0))
CANCELS = st.tuples(st.just("cancel"), st.integers(0, 99), st.just(0))
EVENTS = st.lists(st.one_of(PUSHES, PUSHES, POPS, POPS, DECODES, DECODES, CANCELS), max_size=100)
WEIGHTS = st.fixed_dictionaries({name: st.sampled_from([0.5, 1.0, 2.0, 4.0]) for name in TENANTS})
"""Powers of two, so that sums are exact and ties are ties."""
ANY = settings(phases=(Phase.generate,), max_examples=20_000, derandomize=True)
"""Finds a counterexample, however large."""


class Both:
    """The queue and a reference, side by side.

    When `plain`, somebody always waits, and only those who wait are given tokens.
    """

    def __init__(self, reference: Vtc, *, plain: bool) -> None:
        self.queue = FairQueue()
        self.reference = reference
        self.plain = plain
        self.running: list[Request] = []
        self.num_arrived = 0

    def push(self, tenant: int, cost: int) -> None:
        """A request arrives."""
        self.num_arrived += 1
        request = Request(self.num_arrived, TENANTS[tenant], PREFILL * cost)
        weight = self.reference.weights[request.tenant]
        self.queue.push(
            request.request_id, request.tenant, weight=weight, cost=request.cost, key=0.0
        )
        self.reference.push(request)

    def pop(self) -> None:
        """Both admit a request, the same one."""
        if len(self.queue) > self.plain:
            expected = self.reference.pop()
            assert pop(self.queue) == expected.request_id
            self.queue.charge(
                expected.tenant, expected.cost, self.reference.weights[expected.tenant]
            )
            self.running.append(expected)

    def decode(self, position: int) -> None:
        """A running request is given a token."""
        if self.running:
            tenant = self.running[position % len(self.running)].tenant
            if not self.plain or any(r.tenant == tenant for r in self.reference.queue):
                self.queue.charge(tenant, DECODE, self.reference.weights[tenant])
                self.reference.charge(tenant, DECODE)

    def cancel(self, position: int) -> None:
        """One that waits leaves."""
        if len(self.queue) > self.plain:
            request = self.reference.queue[position % len(self.reference.queue)]
            assert self.queue.remove(request.request_id)
            self.reference.remove(request)

    def run(self, events: list[Event]) -> None:
        """Let both see the events, then admit all who are left."""
        for kind, first, second in events:
            if kind == "push":
                self.push(first, second)
            elif kind == "pop":
                self.pop()
            elif kind == "decode":
                self.decode(first)
            else:
                self.cancel(first)
        self.queue.check_integrity()
        foreseen = list(self.queue.in_order())
        num_running = len(self.running)
        self.plain = False
        while len(self.queue):
            self.pop()
        assert [r.request_id for r in self.running[num_running:]] == foreseen


@settings(max_examples=1000)
@given(EVENTS, WEIGHTS)
def test_m13_while_somebody_waits_the_order_is_vtcs(
    events: list[Event], weights: dict[str, float]
) -> None:
    Both(Vtc(weights), plain=True).run(events)


@settings(max_examples=1000)
@given(EVENTS, WEIGHTS)
def test_m13_else_the_order_is_vtcs_but_for_where_counting_starts(
    events: list[Event], weights: dict[str, float]
) -> None:
    Both(StartTimeVtc(weights), plain=False).run(events)


# -- controls: a reference that is a little different is caught --------------------------------


class NeverLifts(Vtc):
    """Lets idling earn service."""

    def level(self) -> float:
        """Nothing."""
        return 0.0


class CountsRequests(Vtc):
    """Charges each prompt alike."""

    def charge(self, tenant: str, cost: float) -> None:
        """One for a prompt of any length."""
        super().charge(tenant, cost if cost == DECODE else PREFILL)


class ForgetsDecodes(Vtc):
    """Charges prompts only."""

    def charge(self, tenant: str, cost: float) -> None:
        """Nothing for a generated token, nor for a prompt that costs as much."""
        if cost != DECODE:
            super().charge(tenant, cost)


class KnowsNoWeights(Vtc):
    """Charges everybody alike."""

    def charge(self, tenant: str, cost: float) -> None:
        """Take the weight out again."""
        super().charge(tenant, cost * self.weights[tenant])


class LiftsToTheHighest(Vtc):
    """Puts newcomers behind everybody."""

    def level(self) -> float:
        """The highest counter of those who wait."""
        return max((self.counters[r.tenant] for r in self.queue), default=0.0)


@pytest.mark.parametrize(
    "reference", [NeverLifts, CountsRequests, ForgetsDecodes, KnowsNoWeights, LiftsToTheHighest]
)
def test_m13_control_a_counter_that_is_a_little_wrong_is_caught(reference: type[Vtc]) -> None:
    assert find(
        st.tuples(EVENTS, WEIGHTS), lambda case: differs(reference, case, plain=True), settings=ANY
    )


EVEN = dict.fromkeys(TENANTS, 1.0)


def test_m13_the_lull_is_a_real_difference() -> None:
    """Nobody waits once a has had 10. VTC remembers that; headway lets b and a start level."""
    events: list[Event] = [("push", 0, 10), ("pop", 0, 0)]
    events += [("push", 1, 5), ("push", 1, 5), ("push", 0, 1)]
    assert differs(Vtc, (events, EVEN), plain=False)
    Both(StartTimeVtc(EVEN), plain=False).run(events)


def test_m13_where_tokens_of_one_with_nothing_waiting_count_from_is_a_real_difference() -> None:
    """c waits all the time and is at 20 after two turns; a is given 6 tokens with nothing waiting.

    With VTC a stands at 1 + 12 and is lifted to 20; here they count from 10, so a stands at 22.
    """
    events: list[Event] = [("push", 2, 10)] * 4 + [("push", 0, 1), ("pop", 0, 0), ("pop", 0, 0)]
    events += [("pop", 0, 0), *[("decode", 1, 0)] * 6, ("push", 0, 9), ("push", 0, 9)]
    assert differs(Vtc, (events, EVEN), plain=False)
    Both(StartTimeVtc(EVEN), plain=False).run(events)


def differs(
    reference: type[Vtc], case: tuple[list[Event], dict[str, float]], *, plain: bool
) -> bool:
    """Return whether the queue and the reference ever disagree."""
    events, weights = case
    try:
        Both(reference(weights), plain=plain).run(events)
    except AssertionError:
        return True
    return False
