"""Does everybody get a share, whatever nodes are lost and whoever comes and goes?

A random walk over a dispatcher in front of nodes that are lost and return. What a lost node had is
queued again, as the gateway does. Service counts when a request has ended, at its cost.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.core.admission import Shed
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch
from headway.core.dispatch import Dispatcher, Policy
from headway.core.tier import DEFAULT_TIERS, Tiers
from tests.core.scenario import NO_FLOORS, PATIENT, request
from tests.core.windows import Rise

FLOORS = tuple(tier.floor for tier in DEFAULT_TIERS)
TENANTS = "ab"
MAX_COST = 10.0
NODES, SLOTS = 2, 2
OUTSTANDING = NODES * SLOTS
WEIGHTS = (1.0, 2.0)
SLACK = 1e-6


class Shares(RuleBasedStateMachine):
    """Two nodes of two slots, three tiers, two tenants; queues are kept from running dry."""

    def __init__(self, tiers: Tiers = PATIENT, policy: Policy = "qos") -> None:
        super().__init__()
        self.flow = Dispatcher(tiers, Prices(), policy=policy)
        self.number = 0
        self.weights = dict.fromkeys(TENANTS, 1.0)
        self.entries: dict[str, QueuedRequest] = {}
        self.waiting: set[str] = set()
        self.nodes: list[set[str] | None] = [set() for _ in range(NODES)]
        """What each node has; None: it is lost."""
        self.owed = {rank: Rise() for rank in (1, 2)}
        self.others = Rise()
        self.apart = {rank: Rise() for rank in range(3)}

    @rule(
        ranks=st.sets(st.integers(0, 2), min_size=1),
        tenants=st.sets(st.sampled_from(TENANTS), min_size=1),
        cost=st.integers(1, int(MAX_COST)),
        count=st.integers(1, 4),
    )
    def arrive(self, ranks: set[int], tenants: set[str], cost: int, count: int) -> None:
        for rank in sorted(ranks):
            for tenant in sorted(tenants) * count:
                self.number += 1
                name, weight = f"r{self.number}", self.weights[tenant]
                self.enqueue(request(name, rank, tenant, cost=float(cost), weight=weight))
        self.fill()

    def enqueue(self, entry: QueuedRequest) -> None:
        assert not isinstance(self.flow.enqueue(entry, 0.0), Shed)
        self.entries[entry.request_id] = entry
        self.waiting.add(entry.request_id)

    @rule(tenant=st.sampled_from(TENANTS), weight=st.sampled_from(WEIGHTS))
    def change_weight(self, tenant: str, weight: float) -> None:
        """It counts from the tenant's next request on."""
        self.weights[tenant] = weight

    @rule(position=st.integers(0, 20))
    def cancel(self, position: int) -> None:
        if self.waiting:
            name = sorted(self.waiting)[position % len(self.waiting)]
            assert self.flow.remove(name)
            self.waiting.remove(name)
            del self.entries[name]
        self.fill()

    @rule(places=st.lists(st.integers(0, 20), min_size=1, max_size=30))
    def finish(self, places: list[int]) -> None:
        """Several end, one after the other, and each time others leave."""
        for place in places:
            running = sorted(name for node in self.nodes if node for name in node)
            if running:
                self.end(running[place % len(running)])
                self.fill()

    def end(self, name: str) -> None:
        entry = self.entries.pop(name)
        next(node for node in self.nodes if node and name in node).remove(name)
        self.book(entry)
        assert self.flow.settle(name, entry.cost, 0.0)

    @rule(position=st.integers(0, NODES - 1))
    def lose_node(self, position: int) -> None:
        """What it had was not served, and is queued again."""
        lost, self.nodes[position] = self.nodes[position], None
        for name in sorted(lost or ()):
            assert self.flow.settle(name, 0.0, 0.0)
            self.enqueue(self.entries[name])
        self.fill()

    @rule(position=st.integers(0, NODES - 1))
    def return_node(self, position: int) -> None:
        if self.nodes[position] is None:
            self.nodes[position] = set()
        self.fill()

    def fill(self) -> None:
        """Let leave what may leave."""
        while True:
            free = [n for n in self.nodes if n is not None and len(n) < SLOTS]
            decision = self.flow.next(0.0, (len(free),) * 3)
            if not isinstance(decision, Dispatch):
                assert not (free and self.waiting), "G6: a request and a credit, yet nothing left"
                return
            free[0].add(decision.request_id)
            self.waiting.remove(decision.request_id)
            self.note_backlog()

    def note_backlog(self) -> None:
        """End the windows of those that have nothing waiting any more."""
        waiting = [self.entries[name] for name in self.waiting]
        for rank, debt in self.owed.items():
            if all(entry.rank != rank for entry in waiting):
                debt.restart()
        if all(entry.rank != 0 for entry in waiting):
            self.others.restart()
        for rank, difference in self.apart.items():
            tenants = {entry.tenant for entry in waiting if entry.rank == rank}
            if tenants != set(TENANTS):
                difference.restart()

    def book(self, entry: QueuedRequest) -> None:
        """Count the service of a request that has ended."""
        self.note_backlog()
        for rank, debt in self.owed.items():
            debt.add(FLOORS[rank] * entry.cost - (entry.cost if entry.rank == rank else 0.0))
        self.others.add((0.0 if entry.rank == 0 else entry.cost) - sum(FLOORS) * entry.cost)
        share = entry.cost / entry.weight
        self.apart[entry.rank].add(share if entry.tenant == TENANTS[0] else -share)

    @invariant()
    def everybody_has_a_share(self) -> None:
        """G1, G2 and G3 in every window so far; D requests are outstanding."""
        constant = MAX_COST * (1 + 2 * max(FLOORS))
        for rank, debt in self.owed.items():
            late = (1 + FLOORS[rank]) * OUTSTANDING * MAX_COST
            assert debt.most <= constant + late + SLACK, "G1: a floor is not kept"
        late = 2 * OUTSTANDING * MAX_COST
        assert self.others.most <= 2 * constant + late + SLACK, "G2: critical waits for others"
        largest = MAX_COST / min(WEIGHTS)
        for difference in self.apart.values():
            most = 2 * (2 * OUTSTANDING + 1) * largest
            assert difference.widest <= most + SLACK, "G3: tenants drift apart"

    @invariant()
    def books_agree(self) -> None:
        """G9, I10: each request is in one place, and the counts say so."""
        self.flow.check_integrity()
        assert len(self.flow) == len(self.waiting)
        assert self.flow.num_sent == sum(len(node) for node in self.nodes if node is not None)

    def teardown(self) -> None:
        """B7: once nobody arrives any more and a node is there, all of it is served."""
        self.nodes = [set() if node is None else node for node in self.nodes]
        self.fill()
        while running := [name for node in self.nodes if node for name in node]:
            self.end(sorted(running)[0])
            self.fill()
        assert not self.waiting
        assert len(self.flow) == self.flow.num_sent == 0


TestShares = Shares.TestCase
TestShares.settings = settings(max_examples=80, stateful_step_count=40)


def flood(walk: Shares) -> None:
    """Critical requests without end, beside work of the other tiers."""
    for _ in range(60):
        walk.arrive({0, 1, 2}, set(TENANTS), 10, 2)
        walk.finish([0] * 8)
        walk.everybody_has_a_share()


def burst(walk: Shares) -> None:
    """One tenant's burst of one tier, and then another's."""
    for tenant in TENANTS:
        for _ in range(25):
            walk.arrive({1}, {tenant}, 10, 4)
    for _ in range(10):
        walk.finish([0] * 10)
        walk.everybody_has_a_share()


def test_control_without_floors_the_walk_finds_starvation() -> None:
    flood(Shares())
    with pytest.raises(AssertionError, match="G1: a floor is not kept"):
        flood(Shares(NO_FLOORS))


def test_control_without_fairness_the_walk_finds_a_tenant_served_alone() -> None:
    burst(Shares())
    with pytest.raises(AssertionError, match="G3: tenants drift apart"):
        burst(Shares(policy="fcfs"))


def test_control_without_tiers_the_walk_finds_critical_waiting() -> None:
    """G2: first come, first served lets critical wait behind the others' burst."""

    def late(walk: Shares) -> None:
        for _ in range(20):
            walk.arrive({2}, {"a"}, 10, 4)
        for _ in range(20):
            walk.arrive({0}, {"a"}, 10, 1)
            walk.finish([0] * 4)
            walk.everybody_has_a_share()

    late(Shares())
    with pytest.raises(AssertionError, match="G2: critical waits for others"):
        late(Shares(policy="fcfs"))
