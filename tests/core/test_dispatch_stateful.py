"""Does each request leave exactly once, whatever happens in whatever order? (G6, G9)"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.core.admission import Shed
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch, Idle, WaitUntil
from headway.core.dispatch import Dispatcher
from headway.core.tier import DEFAULT_TIERS, Tiers
from tests.core.scenario import bounded, request


def expiry(entry: QueuedRequest) -> float:
    """Return when a request of the default tiers leaves unserved."""
    timeout_s = DEFAULT_TIERS[entry.rank].queue_timeout_s
    limit = float("inf") if timeout_s is None else entry.arrival + timeout_s
    return limit if entry.deadline is None else min(limit, entry.deadline)


def highest(entry: QueuedRequest) -> int:
    """Return the most urgent rank that a request may come to wait in: deadlines move bulk up."""
    return 1 if entry.rank == 2 and entry.deadline is not None else entry.rank


class Lifecycle(RuleBasedStateMachine):
    """G6 and G9, queue side: whatever happens, in whatever order, each request leaves once."""

    def __init__(self) -> None:
        super().__init__()
        tiers = bounded(Tiers(), max_queued=6, max_queued_tokens=100)
        self.flow = Dispatcher(tiers, Prices())
        self.now = 0.0
        self.number = 0
        self.waiting: dict[str, QueuedRequest] = {}
        self.sent: dict[str, QueuedRequest] = {}

    @rule(
        rank=st.integers(0, 2),
        tenant=st.sampled_from("abc"),
        tokens=st.integers(1, 40),
        deadline_s=st.none() | st.integers(1, 30),
    )
    def arrive(self, rank: int, tenant: str, tokens: int, deadline_s: int | None) -> None:
        self.number += 1
        entry = replace(
            request(f"r{self.number}", rank, tenant, cost=float(tokens), arrival=self.now),
            deadline=None if deadline_s is None else self.now + deadline_s,
        )
        decision = self.flow.enqueue(entry, self.now)
        if isinstance(decision, Shed):
            assert 1 <= decision.retry_after_s <= 120
            assert not self.flow.remove(entry.request_id)
            return
        for victim in decision.evicted:
            assert self.waiting.pop(victim).tenant != tenant
        self.waiting[entry.request_id] = entry

    @rule(free=st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)))
    def leave(self, free: tuple[int, int, int]) -> None:
        decision = self.flow.next(self.now, free)
        ready = [
            one for one in self.waiting.values() if free[one.rank] > 0 and free[highest(one)] > 0
        ]
        if isinstance(decision, Dispatch):
            entry = self.waiting.pop(decision.request_id)
            served = entry.rank if decision.promoted_to is None else decision.promoted_to
            assert free[served] > 0
            assert served in (entry.rank, highest(entry))
            self.sent[entry.request_id] = entry
        elif isinstance(decision, WaitUntil) and decision.at <= self.now:
            assert self.take_expired() > 0
        else:
            assert not ready, "G6: a request and a credit, yet nothing left"
            assert isinstance(decision, WaitUntil) or all(
                one.rank == 2 and one.deadline is None for one in self.waiting.values()
            )

    @rule()
    def expire(self) -> None:
        self.take_expired()

    def take_expired(self) -> int:
        """Take out what has expired; return how many did."""
        gone = self.flow.expired(self.now)
        for request_id in gone:
            assert expiry(self.waiting.pop(request_id)) <= self.now
        assert all(expiry(entry) > self.now for entry in self.waiting.values())
        return len(gone)

    @rule(position=st.integers(0, 20))
    def cancel(self, position: int) -> None:
        if self.waiting:
            name = sorted(self.waiting)[position % len(self.waiting)]
            assert self.flow.remove(name, self.now)
            assert not self.flow.remove(name, self.now)
            del self.waiting[name]

    @rule(position=st.integers(0, 20), cost=st.floats(0, 100))
    def finish(self, position: int, cost: float) -> None:
        if self.sent:
            name = sorted(self.sent)[position % len(self.sent)]
            assert self.flow.settle(name, cost, self.now)
            assert not self.flow.settle(name, cost, self.now)
            del self.sent[name]

    @rule(seconds=st.integers(1, 10))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def counters_agree(self) -> None:
        self.flow.check_integrity()
        assert len(self.flow) == len(self.waiting)
        assert self.flow.num_sent == len(self.sent)
        for rank in range(3):
            own = [one for one in self.waiting.values() if one.rank == highest(one) == rank]
            visiting = [one for one in self.waiting.values() if one.rank != highest(one)]
            most = visiting if rank > 0 else []
            assert len(own) <= self.flow.queue_depth(rank) <= min(6, len(own) + len(most))
            tokens = sum(one.tokens for one in own)
            most_tokens = tokens + sum(one.tokens for one in most)
            assert tokens <= self.flow.queued_tokens(rank) <= min(100, most_tokens)
        assert sum(self.flow.queue_depth(rank) for rank in range(3)) == len(self.waiting)

    def teardown(self) -> None:
        """Let everything end, and look for what is left over."""
        for name in self.sent:
            assert self.flow.settle(name, 1.0, self.now)
        self.sent.clear()
        for name in list(self.waiting):
            assert self.flow.remove(name)
        self.waiting.clear()
        self.counters_agree()
        assert self.flow.next(self.now + 1e9, (9, 9, 9)) == Idle()


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
