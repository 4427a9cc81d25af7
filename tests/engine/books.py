"""What must hold after every step of the engine's scheduler, whatever happens in between?

A random walk over arrivals, cancellations, failures, weights and slots that change, on a pool so
small that it is often full. After every step: G4, G6, G7, G9, G11 and I1 to I10 of
`algorithms.md` §4, as far as they can be seen from outside. (The pool itself neither grows nor
shrinks: it is one tensor, allocated with the engine.)
"""

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.core.preemption import may_preempt
from headway.core.request import RequestState
from headway.core.step import Candidate, Resident, StepInput, TierLimits, Wait
from headway.engine.scheduler import ScheduledStep
from headway.engine.sequence import Sequence
from tests.engine.drive import Drive

BLOCK = 16
TENANTS = ("", "a", "b")
MAX_PREEMPTIONS = st.sampled_from([1, 1, 2, 3])
RESERVED_SLOTS = 1
SLOTS = st.sampled_from([2, 3, 4, 5, 14])
"""Mostly too few; and more than the tokens of a step that time does not bound."""


class Books(RuleBasedStateMachine):
    """An engine's scheduler, which a subclass starts with, and what the walk knows of it."""

    def start(self, drive: Drive, max_preemptions: int) -> None:
        """Walk with this scheduler, which preempts nobody more often."""
        self.drive, self.max_preemptions = drive, max_preemptions
        self.slots = drive.scheduler.limits.max_num_seqs
        self.times_preempted: Counter[str] = Counter()

    @property
    def living(self) -> dict[str, Sequence]:
        """Those that run or wait."""
        over = (RequestState.FINISHED, RequestState.ABORTED)
        return {i: s for i, s in self.drive.sequences.items() if s.state not in over}

    # -- what may happen ------------------------------------------------------------------------

    @rule(
        rank=st.integers(0, 2),
        size=st.integers(1, 80),
        length=st.integers(1, 40),
        tenant=st.sampled_from(TENANTS),
        weight=st.sampled_from([0.5, 1.0, 4.0]),
        first_token=st.integers(1, 2),
        answers=st.sampled_from([1, 1, 1, 2, 3]),
    )
    def arrive(
        self,
        rank: int,
        size: int,
        length: int,
        tenant: str,
        weight: float,
        first_token: int,
        answers: int,
    ) -> None:
        """A tenant's weight changes with its latest request."""
        most = self.drive.kv.num_blocks * BLOCK
        size = min(size, most)
        length = min(length, most - size + 1)
        self.drive.add(rank, size, length, tenant, weight, first_token=first_token, answers=answers)

    @rule(position=st.integers(0, 30))
    def cancel(self, position: int) -> None:
        living = sorted(self.living)
        if living:
            request_id = self.drive.sequences[living[position % len(living)]].request.request_id
            self.drive.scheduler.abort(request_id)
            self.drive.scheduler.abort(request_id)
            assert not any(i.startswith(f"{request_id}/") for i in self.living)

    @rule(slots=SLOTS)
    def change_slots(self, slots: int) -> None:
        """Never below what runs: nobody is put out for it."""
        running = sum(self.drive.scheduler.stats().num_running)
        scheduler = self.drive.scheduler
        self.slots = max(slots, running)
        scheduler.limits = replace(scheduler.limits, max_num_seqs=self.slots)

    @rule(times=st.integers(1, 6), failing=st.integers(0, 12))
    def steps(self, times: int, failing: int) -> None:
        """Some steps; now and then one of the sequences fails."""
        for _ in range(times):
            living = sorted(self.living)
            if not living:
                assert self.drive.scheduler.schedule(self.drive.now) is None
                return
            self.step(living[failing : failing + 1])

    # -- what must hold -------------------------------------------------------------------------

    def step(self, failing: list[str]) -> tuple[StepInput, ScheduledStep]:
        """Run a step and check it; return what it was planned from, and what it is."""
        scheduler = self.drive.scheduler
        before = scheduler.step_input(self.drive.now)
        heads = [next(line.in_order(), None) for line in before.waiting]
        candidates = {c.sequence_id: c for line in before.waiting for c in line.in_order()}
        emitted = len(self.drive.emitted)
        known = {i: len(s.token_ids) for i, s in self.living.items()}
        step = self.drive.step(failing)
        large = {r.sequence_id for r in before.residents if self.gives_way(r)}
        self.times_preempted.update(set(step.plan.preempted) - large)
        self.check_whole(before, step)
        check_preemptions(before, step, candidates, scheduler.limits.tiers, large)
        check_reserve(before, step, candidates, self.slots)
        check_reasons(step, heads, candidates, scheduler.limits.max_overtakes)
        check_critical(before, step, heads[0], large)
        for sequence_id in {name for _, name in self.drive.emitted[emitted:]} - set(failing):
            grown = len(self.drive.sequences[sequence_id].token_ids) - known[sequence_id]
            assert grown == 1, "I9: a token is lost or doubled"
        return before, step

    def gives_way(self, resident: Resident) -> bool:
        """Whether it is protected and yet leaves rank 0 the blocks that it needs."""
        blocks = -(-resident.max_num_tokens // BLOCK)
        return resident.protected and resident.rank > 0 and 2 * blocks > self.drive.kv.num_blocks

    def check_whole(self, before: StepInput, step: ScheduledStep) -> None:
        """G6, I7 and I8: the step computes something, within its budget, of those that run."""
        plan, most = step.plan, self.drive.scheduler.limits.max_num_batched_tokens
        assert plan.items, "G6: an empty plan"
        sizes = [item.num_tokens for item in plan.items]
        exceeding = 0 if self.drive.machine.chunks else max(sizes)
        assert sum(sizes) - exceeding <= most, "I7: over the budget"
        assert all(item.num_tokens > 0 for item in plan.items)
        planned = {item.sequence_id for item in plan.items}
        assert not planned & set(plan.preempted), "G4: a victim runs"
        for resident in before.residents:
            gone = resident.sequence_id in plan.preempted
            assert gone or resident.sequence_id in planned | plan.waits.keys(), "I8: no reason"

    @invariant()
    def holds(self) -> None:
        """I1, I2, I3 (how often), I9 (computed tokens are held), and the counts."""
        if not hasattr(self, "drive"):
            return
        self.drive.scheduler.check_integrity()
        owners: dict[int, tuple[str, str]] = {}
        for sequence_id, sequence in self.living.items():
            times = self.times_preempted[sequence_id]
            assert times <= self.max_preemptions, "I3: preempted too often"
            if not self.drive.kv.resident(sequence_id):
                assert sequence.num_computed == 0
                continue
            blocks = self.drive.kv.block_table(sequence_id)
            assert sequence.num_computed <= len(blocks) * BLOCK, "I9: computed, but not held"
            owner = (sequence.request.tenant, sequence.request.cache_salt)
            for block in blocks:
                assert owners.setdefault(block, owner) == owner, "I2: shared between tenants"
        stats = self.drive.scheduler.stats()
        assert sum(stats.num_running) + sum(stats.num_waiting) == len(self.living)
        assert stats.num_generation_tokens <= len(self.drive.emitted)

    def teardown(self) -> None:
        """G4, B7: left alone, everything ends, and nothing is left behind (G9)."""
        if not hasattr(self, "drive"):
            return
        tokens = sum(s.max_num_tokens for s in self.living.values())
        for _ in range((self.max_preemptions + 2) * (tokens + 10)):
            if not self.living:
                break
            self.step([])
        assert not self.living, "G4: it does not end"
        stats = self.drive.scheduler.stats()
        assert sum(stats.num_running) == sum(stats.num_waiting) == stats.num_held_blocks == 0
        assert not self.drive.scheduler.has_unfinished


def check_preemptions(
    before: StepInput,
    step: ScheduledStep,
    candidates: dict[str, Candidate],
    tiers: tuple[TierLimits, ...],
    large: set[str],
) -> None:
    """I3, G4: whoever gives way does so for one who runs and may ask for it."""
    residents = {r.sequence_id: r for r in before.residents}
    planned: list[Resident | Candidate] = [
        residents.get(item.sequence_id) or candidates[item.sequence_id] for item in step.plan.items
    ]
    for sequence_id in step.plan.preempted:
        victim = residents[sequence_id]
        by_force = len(planned) == 1
        may_ask = (may_preempt(o, victim, tiers, is_large=sequence_id in large) for o in planned)
        assert by_force or any(may_ask), "I3"


def check_reserve(
    before: StepInput, step: ScheduledStep, candidates: dict[str, Candidate], slots: int
) -> None:
    """I4: after an admission of a lower tier, critical finds the slots that it has not used."""
    admitted = [candidates[i.sequence_id] for i in step.plan.items if i.is_admission]
    stay = [r for r in before.residents if r.sequence_id not in step.plan.preempted]
    critical = sum(r.rank == 0 for r in stay) + sum(c.rank == 0 for c in admitted)
    used = len(stay) + len(admitted)
    assert used <= slots
    if any(one.rank > 0 for one in admitted):
        assert used + max(0, RESERVED_SLOTS - critical) <= slots, "I4: the reserve is taken"


def check_reasons(
    step: ScheduledStep,
    heads: list[Candidate | None],
    candidates: dict[str, Candidate],
    max_overtakes: int,
) -> None:
    """I8: the first of each tier runs, or there is a reason why not: its own, or that it is held
    for one that was overtaken as often as allowed."""
    plan = step.plan
    planned = {item.sequence_id for item in plan.items}
    held = any(
        candidates[i].overtaken + plan.overtaken.get(i, 0) >= max_overtakes
        for i in plan.waits.keys() & candidates.keys()
    )
    for head in heads:
        if head is not None and head.sequence_id not in planned:
            assert held or head.sequence_id in plan.waits, "I8: no reason"


def check_critical(
    before: StepInput, step: ScheduledStep, head: Candidate | None, large: set[str]
) -> None:
    """I5, G2: the first critical request runs, unless one of the named reasons holds it."""
    planned = {item.sequence_id for item in step.plan.items}
    if head is None or head.sequence_id in planned:
        return
    own_tier = any(r.rank == 0 for r in before.residents)
    reason = step.plan.waits.get(head.sequence_id)
    gives_way = large if reason is Wait.BLOCKS else ()
    protected = any(r.protected and r.sequence_id not in gives_way for r in before.residents)
    assert own_tier or protected or before.owed, "I5: lower tiers keep critical out"
    assert reason in (Wait.SLOTS, Wait.BLOCKS, Wait.HELD, Wait.TOKENS), "I5: no reason"
