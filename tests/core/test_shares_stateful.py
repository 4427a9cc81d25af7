"""Does everybody get a share, whatever nodes are lost and whoever comes and goes?

A random walk over a dispatcher in front of nodes that are lost and return. What a lost node had is
queued again, as the gateway does. Service counts when a request has ended, at its cost. Nodes are
small, floors large, and floods long beside the slack of the bounds, so that the walk breaks them
where a mechanism is off: each control is the same walk.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headway.core.admission import Shed
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch
from headway.core.dispatch import Dispatcher, Policy
from headway.core.tier import Tiers
from tests.core.scenario import NO_FLOORS, PATIENT, bounded, request
from tests.core.windows import Rise

FLOORS = (0.0, 0.3, 0.2)
FLOORED = Tiers(
    tuple(replace(tier, floor=floor) for tier, floor in zip(PATIENT.all, FLOORS, strict=True))
)
TENANTS = "ab"
MAX_COST = 10.0
NODES, SLOTS = 2, 1
OUTSTANDING = NODES * SLOTS
WEIGHTS = (1.0, 4.0)
SLACK = 1e-6


class Shares(RuleBasedStateMachine):
    """Two nodes of one slot, three tiers, two tenants; queues are kept from running dry."""

    tiers: Tiers = FLOORED
    policy: Policy = "qos"
    checked: tuple[str, ...] = ("G1", "G2", "G3")

    def __init__(self) -> None:
        super().__init__()
        tiers = bounded(self.tiers, max_queued=10**6)
        self.flow = Dispatcher(tiers, Prices(), policy=self.policy)
        self.number = 0
        self.weights = dict(zip(TENANTS, WEIGHTS, strict=True))
        self.entries: dict[str, QueuedRequest] = {}
        self.waiting: set[str] = set()
        self.num_waiting: Counter[tuple[int, str]] = Counter()
        """By rank and tenant."""
        self.nodes: list[set[str] | None] = [set() for _ in range(NODES)]
        """What each node has; None: it is lost."""
        self.owed = {rank: Rise() for rank in (1, 2)}
        self.others = Rise()
        self.apart = {rank: Rise() for rank in range(3)}

    # -- what may happen ------------------------------------------------------------------------

    @rule(
        ranks=st.sets(st.integers(0, 2), min_size=1),
        tenants=st.sets(st.sampled_from(TENANTS), min_size=1),
        cost=st.integers(1, int(MAX_COST)),
        count=st.integers(1, 4),
    )
    def arrive(self, ranks: set[int], tenants: set[str], cost: int, count: int) -> None:
        """Requests come, by tier, the tenants in turns."""
        for rank in sorted(ranks):
            for tenant in sorted(tenants) * count:
                self.number += 1
                name, weight = f"r{self.number}", self.weights[tenant]
                self.enqueue(request(name, rank, tenant, cost=float(cost), weight=weight))
        self.fill()

    @rule(
        ranks=st.sets(st.integers(0, 2), min_size=1),
        tenants=st.sets(st.sampled_from(TENANTS), min_size=1),
        count=st.integers(30, 60),
    )
    def flood(self, ranks: set[int], tenants: set[str], count: int) -> None:
        """So many come that their queue does not run dry soon."""
        self.arrive(ranks, tenants, int(MAX_COST), count)

    def enqueue(self, entry: QueuedRequest) -> None:
        assert not isinstance(self.flow.enqueue(self.seen(entry), 0.0), Shed)
        self.entries[entry.request_id] = entry
        self.waiting.add(entry.request_id)
        self.num_waiting[entry.rank, entry.tenant] += 1

    def seen(self, entry: QueuedRequest) -> QueuedRequest:
        """Return the request as the dispatcher is told of it."""
        return entry

    @rule(tenant=st.sampled_from(TENANTS), weight=st.sampled_from(WEIGHTS))
    def change_weight(self, tenant: str, weight: float) -> None:
        """It counts from the tenant's next request on."""
        self.weights[tenant] = weight

    @rule(position=st.integers(0, 20))
    def cancel(self, position: int) -> None:
        if self.waiting:
            name = sorted(self.waiting)[position % len(self.waiting)]
            assert self.flow.remove(name)
            self.leave_queue(name)
            del self.entries[name]
        self.fill()

    @rule(places=st.lists(st.integers(0, OUTSTANDING - 1), min_size=1, max_size=30))
    def finish(self, places: list[int]) -> None:
        """Several end, one after the other, and each time others leave."""
        for place in places:
            running = self.running()
            if running:
                self.end(running[place % len(running)])
                self.fill()

    @rule(count=st.integers(30, 80))
    def serve(self, count: int) -> None:
        """Very many end, in turns."""
        self.finish(list(range(count)))

    def running(self) -> list[str]:
        return sorted(name for node in self.nodes if node for name in node)

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

    @rule(
        ranks=st.sets(st.integers(0, 2), min_size=1),
        tenants=st.sets(st.sampled_from(TENANTS), min_size=1),
        count=st.integers(5, 30),
    )
    def break_nodes(self, ranks: set[int], tenants: set[str], count: int) -> None:
        """These requests break whichever node they are on, again and again; others end."""
        for _ in range(count):
            for position, node in enumerate(self.nodes):
                for name in sorted(node or ()):
                    entry = self.entries[name]
                    if entry.rank in ranks and entry.tenant in tenants:
                        self.lose_node(position)
                        self.return_node(position)
                    else:
                        self.end(name)
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
            self.leave_queue(decision.request_id)

    def leave_queue(self, name: str) -> None:
        """Take a request out of what waits, and end the windows of those with nothing more."""
        entry = self.entries[name]
        self.waiting.remove(name)
        self.num_waiting[entry.rank, entry.tenant] -= 1
        self.end_windows()

    def end_windows(self) -> None:
        backlogged = {rank for (rank, _), number in self.num_waiting.items() if number > 0}
        for rank in self.owed.keys() - backlogged:
            self.owed[rank].restart()
        if 0 not in backlogged:
            self.others.restart()
        for rank, difference in self.apart.items():
            if any(self.num_waiting[rank, tenant] == 0 for tenant in TENANTS):
                difference.restart()

    def book(self, entry: QueuedRequest) -> None:
        """Count the service of a request that has ended."""
        self.end_windows()
        for rank, debt in self.owed.items():
            debt.add(FLOORS[rank] * entry.cost - (entry.cost if entry.rank == rank else 0.0))
        self.others.add((0.0 if entry.rank == 0 else entry.cost) - sum(FLOORS) * entry.cost)
        share = entry.cost / entry.weight
        self.apart[entry.rank].add(share if entry.tenant == TENANTS[0] else -share)

    # -- what must hold -------------------------------------------------------------------------

    def reached(self) -> Iterator[tuple[str, float, float]]:
        """Yield by guarantee the worst window so far, and its bound with D requests outstanding."""
        constant = MAX_COST * (1 + 2 * max(FLOORS))
        for rank, debt in self.owed.items():
            late = (1 + FLOORS[rank]) * OUTSTANDING * MAX_COST
            yield "G1", debt.most, constant + late
        yield "G2", self.others.most, 2 * constant + 2 * OUTSTANDING * MAX_COST
        largest = MAX_COST / min(WEIGHTS)
        for difference in self.apart.values():
            yield "G3", difference.widest, 2 * (2 * OUTSTANDING + 1) * largest

    @invariant()
    def everybody_has_a_share(self) -> None:
        """G1, G2 and G3 in every window so far."""
        for guarantee, most, bound in self.reached():
            broken = guarantee in self.checked and most > bound + SLACK
            assert not broken, f"{guarantee}: {most} of {bound}"

    @invariant()
    def books_agree(self) -> None:
        """G9, I10: each request is in one place, and the counts say so."""
        self.flow.check_integrity()
        assert len(self.flow) == len(self.waiting) == self.num_waiting.total()
        assert self.flow.num_sent == sum(len(node) for node in self.nodes if node is not None)

    def teardown(self) -> None:
        """B7: once nobody arrives any more and a node is there, all of it is served."""
        self.nodes = [set() if node is None else node for node in self.nodes]
        self.fill()
        while running := self.running():
            self.end(running[0])
            self.fill()
        assert not self.waiting
        assert len(self.flow) == self.flow.num_sent == 0


WALK = settings(max_examples=150, stateful_step_count=20)
TestShares = Shares.TestCase
TestShares.settings = WALK


# -- controls -----------------------------------------------------------------------------------


class WithoutFloors(Shares):
    """What a tier is served beside the more urgent ones is chance."""

    tiers = NO_FLOORS
    checked = ("G1",)


class WithoutTiers(Shares):
    """First come, first served, as far as critical's wait is concerned."""

    policy: Policy = "fcfs"
    checked = ("G2",)


class WithoutTenants(Shares):
    """To the dispatcher all requests of a tier are one tenant's."""

    checked = ("G3",)

    def seen(self, entry: QueuedRequest) -> QueuedRequest:
        return replace(entry, tenant="", weight=1.0)


def assert_breaks(walk: type[Shares]) -> None:
    """Run the same walk, with the same number of examples; it has to find a broken guarantee."""
    options = settings(WALK, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError, match=f"^{walk.checked[0]}: "):
        run_state_machine_as_test(walk, settings=options)


def test_control_without_floors_the_walk_finds_starvation() -> None:
    assert_breaks(WithoutFloors)


def test_control_without_tiers_the_walk_finds_critical_waiting() -> None:
    assert_breaks(WithoutTiers)


def test_control_without_fairness_the_walk_finds_a_tenant_served_alone() -> None:
    assert_breaks(WithoutTenants)
