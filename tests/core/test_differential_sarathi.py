"""With floors, weights and prefix cache off, does the planner equal Sarathi-Serve's?

M13. The reference is written from the paper, for these tests only. Where headway differs on
purpose, the difference is a parameter of the reference: so it is exactly this one and nothing else;
`docs/policies.md` says why.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from headway.core.batching import plan_step
from headway.core.step import (
    Candidate,
    Resident,
    StepInput,
    StepLimits,
    StepPlan,
    TierLimits,
)
from tests.core.situation import BLOCK, Line, Pool, blocks

Planner = Callable[[StepInput, StepLimits], StepPlan]
Plan = dict[str, int]
"""Tokens by sequence."""


def sarathi(step: StepInput, limits: StepLimits, *, share: bool = False) -> Plan:
    """All decodes, then prompts that have begun, then new ones until one does not fit (OSDI'24).

    Each gets the smaller of what it needs and of what is left. `share` is headway's difference:
    whoever waited longest is first; decodes leave half of all to the prompts that have begun, and
    the first prompt that does not end leaves half of the rest to those behind it. What nobody took
    goes round once more.
    """
    residents = sorted(step.residents, key=lambda r: (r.last_step if share else 0, r.arrival))
    decodes = [(r.sequence_id, 1) for r in residents if r.num_left == 1]
    begun = [(r.sequence_id, r.num_left) for r in residents if r.num_left > 1]
    prompts = [*begun, *_admissible(step, limits)]
    left = limits.max_num_batched_tokens
    kept = min(sum(num_left for _, num_left in begun), left // 2) if share else 0
    plan = dict(decodes[: left - kept])
    left -= len(plan)
    halved = not share
    for name, num_left in prompts:
        room = left
        if num_left > left and not halved:
            halved, room = True, (left + 1) // 2
        if left > 0:
            plan[name] = min(num_left, room)
            left -= plan[name]
    for name, num_left in [*decodes, *prompts]:
        more = min(left, num_left - plan.get(name, 0))
        if more > 0:
            plan[name] = plan.get(name, 0) + more
            left -= more
    return plan


def _admissible(step: StepInput, limits: StepLimits) -> list[tuple[str, int]]:
    """Return who may begin, with its tokens: as many as there are slots and blocks for in order."""
    free = step.memory.num_blocks - sum(blocks(r.num_tokens) for r in step.residents)
    found: list[tuple[str, int]] = []
    for candidate in step.waiting[0].in_order():
        free -= blocks(candidate.num_tokens)
        if free < 0 or len(found) + len(step.residents) == limits.max_num_seqs:
            break
        found.append((candidate.sequence_id, candidate.num_tokens))
    return found


@dataclass
class World:
    """An engine of one tier that nobody is promised anything of, without a prefix cache."""

    limits: StepLimits
    num_blocks: int
    running: dict[str, Resident] = field(default_factory=dict)
    waiting: list[Candidate] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=dict)
    """Tokens still to be generated, by sequence."""
    num_steps: int = 0

    def arrive(self, prompt: int, output: int) -> None:
        """Let a sequence wait."""
        number = len(self.missing)
        name = f"s{number}"
        self.waiting.append(Candidate(name, 0, number, prompt, prompt + output))
        self.missing[name] = output

    def cancel(self, position: int) -> None:
        """Take out one that waits or runs."""
        names = [*self.running, *(c.sequence_id for c in self.waiting)]
        if names:
            name = names[position % len(names)]
            self.running.pop(name, None)
            self.waiting = [c for c in self.waiting if c.sequence_id != name]

    @property
    def prompt_left(self) -> int:
        """Prompt tokens that are not computed."""
        begun = sum(r.num_left for r in self.running.values() if r.num_left > 1)
        return begun + sum(c.num_tokens for c in self.waiting)

    def look(self) -> StepInput:
        """Return what the planner sees."""
        residents = tuple(self.running.values())
        pool = Pool(self.num_blocks, residents)
        return StepInput(residents=residents, waiting=(Line(list(self.waiting)),), memory=pool)

    def apply(self, plan: Plan) -> None:
        """Compute the plan."""
        self.num_steps += 1
        for name, num_tokens in plan.items():
            sequence = self.running.get(name)
            if sequence is None:
                sequence = self._admit(name)
            computed = sequence.num_computed + num_tokens
            known = sequence.num_tokens
            if computed == known:
                self.missing[name] -= 1
                known += 1
            self.running[name] = Resident(
                name, 0, sequence.arrival, known, computed, sequence.max_num_tokens, self.num_steps
            )
            if self.missing[name] == 0:
                del self.running[name]

    def _admit(self, name: str) -> Resident:
        candidate = next(c for c in self.waiting if c.sequence_id == name)
        self.waiting.remove(candidate)
        return Resident(
            name, 0, candidate.arrival, candidate.num_tokens, 0, candidate.max_num_tokens
        )


SLOTS, TOKENS = 4, 24
LIMITS = StepLimits(
    max_num_seqs=SLOTS, max_num_batched_tokens=TOKENS, tiers=(TierLimits(),), lookahead=1
)
"""`lookahead` 1: nobody who does not fit is looked past."""
AMPLE = 1000
Event = tuple[str, int, int]
STEP: Event = ("step", 0, 0)
ARRIVALS = st.tuples(st.just("arrive"), st.integers(1, 90), st.integers(1, 20))
ONE_TOKEN = st.tuples(st.just("arrive"), st.integers(1, 90), st.just(1))
CANCELS = st.tuples(st.just("cancel"), st.integers(0, 99), st.just(0))


def sequences(arrivals: st.SearchStrategy[Event] = ARRIVALS) -> st.SearchStrategy[list[Event]]:
    """Return sequences of arrivals, steps and a few cancels."""
    some = st.one_of(arrivals, st.just(STEP), arrivals, st.just(STEP), st.just(STEP), CANCELS)
    return st.lists(some, max_size=60)


def run(
    events: list[Event],
    reference: Callable[[StepInput, StepLimits], Plan],
    planner: Planner = plan_step,
    *,
    num_blocks: int = AMPLE,
    competing: bool = True,
) -> int:
    """Let both plan each step, and compare. Returns the number of steps.

    Without `competing` a prompt arrives while there are others only if all fit into one step; so no
    prompt is cut short while there is one behind it.
    """
    world = World(LIMITS, num_blocks)
    for kind, first, second in [*events, *[STEP] * 20]:
        if kind == "arrive":
            left = world.prompt_left
            room = first if competing or left == 0 else TOKENS - SLOTS - left
            if room > 0:
                world.arrive(min(first, room), second)
        elif kind == "cancel":
            world.cancel(first)
        else:
            step = world.look()
            expected = reference(step, LIMITS)
            found = planner(step, LIMITS)
            assert {i.sequence_id: i.num_tokens for i in found.items} == expected
            assert found.preempted == ()
            world.apply(expected)
    return world.num_steps


def sharing(step: StepInput, limits: StepLimits) -> Plan:
    """Return Sarathi's plan with headway's difference."""
    return sarathi(step, limits, share=True)


@settings(max_examples=600)
@given(sequences())
def test_m13_where_no_prompt_is_cut_short_before_another_the_plan_is_sarathis(
    events: list[Event],
) -> None:
    run(events, sarathi, competing=False)


@settings(max_examples=600)
@given(sequences())
def test_m13_else_the_plan_is_sarathis_but_for_the_half_that_is_shared(
    events: list[Event],
) -> None:
    run(events, sharing)


@settings(max_examples=500)
@given(sequences(ONE_TOKEN))
def test_m13_admissions_by_blocks_are_sarathis(events: list[Event]) -> None:
    """With answers of one token nothing grows, so that blocks only decide who is admitted."""
    run(events, sharing, num_blocks=10)


@settings(max_examples=500)
@given(sequences())
def test_m13_whoever_shares_it_the_step_is_as_full_and_no_decode_is_left_out(
    events: list[Event],
) -> None:
    def check(step: StepInput, limits: StepLimits) -> Plan:
        plan, plain = sharing(step, limits), sarathi(step, limits)
        assert sum(plan.values()) == sum(plain.values())
        decodes = {r.sequence_id for r in step.residents if r.num_left == 1}
        assert all(plan[name] == 1 for name in decodes)
        return plan

    run(events, check)


@st.composite
def situations(draw: st.DrawFn) -> tuple[StepInput, StepLimits]:
    """Draw any step, with budgets too small for the decodes among them."""
    residents = []
    for arrival in range(draw(st.integers(0, 8))):
        left = draw(st.one_of(st.just(1), st.integers(1, 60)))
        computed = draw(st.integers(1, 5)) * BLOCK
        turn = draw(st.integers(0, 3))
        residents.append(Resident(f"r{arrival}", 0, arrival, computed + left, computed, 400, turn))
    waiting = [
        Candidate(f"c{arrival}", 0, arrival, draw(st.integers(1, 90)), 400)
        for arrival in range(100, 100 + draw(st.integers(0, 6)))
    ]
    limits = StepLimits(
        max_num_seqs=max(1, len(residents) + draw(st.integers(0, 6))),
        max_num_batched_tokens=draw(st.integers(1, 80)),
        tiers=(TierLimits(),),
    )
    pool = Pool(AMPLE, tuple(residents))
    return StepInput(residents=pool.residents, waiting=(Line(waiting),), memory=pool), limits


@settings(max_examples=500)
@given(situations())
def test_m13_any_step_is_sarathis_but_for_what_is_shared(
    situation: tuple[StepInput, StepLimits],
) -> None:
    found = plan_step(*situation)
    assert {i.sequence_id: i.num_tokens for i in found.items} == sharing(*situation)


def test_m13_sharing_is_a_real_difference() -> None:
    """A short prompt behind a long one: Sarathi's budget goes to the long one alone."""
    world = World(LIMITS, AMPLE)
    world.arrive(300, 1)
    world.arrive(10, 1)
    assert sarathi(world.look(), LIMITS) == {"s0": 24}
    assert sharing(world.look(), LIMITS) == {"s0": 14, "s1": 10}


# -- controls: a planner that is a little wrong is caught --------------------------------------


def youngest_first(step: StepInput, limits: StepLimits) -> StepPlan:
    """Take residents for as old as they are young."""
    swapped = tuple(r._replace(arrival=-r.arrival) for r in step.residents)
    return plan_step(replace(step, residents=swapped), limits)


def last_come_first_served(step: StepInput, limits: StepLimits) -> StepPlan:
    """Admit from the wrong end."""
    line = Line(list(step.waiting[0].in_order())[::-1])
    return plan_step(replace(step, waiting=(line,)), limits)


def one_token_short(step: StepInput, limits: StepLimits) -> StepPlan:
    """Leave a token unused."""
    return plan_step(step, replace(limits, max_num_batched_tokens=TOKENS - 1))


def one_slot_short(step: StepInput, limits: StepLimits) -> StepPlan:
    """Leave a slot unused."""
    return plan_step(step, replace(limits, max_num_seqs=SLOTS - 1))


def forgets_a_decode(step: StepInput, limits: StepLimits) -> StepPlan:
    """Leave out the last decode of a full step."""
    plan = plan_step(step, limits)
    return replace(plan, items=plan.items[1:]) if len(plan.items) == SLOTS else plan


@pytest.mark.parametrize(
    ("mutant", "competing"),
    [
        (last_come_first_served, True),
        (one_token_short, False),
        (one_slot_short, False),
        (forgets_a_decode, False),
        (youngest_first, True),
    ],
)
def test_m13_control_a_planner_that_is_a_little_wrong_is_caught(
    mutant: Planner, competing: bool
) -> None:
    def is_caught(events: list[Event]) -> bool:
        try:
            run(events, sharing if competing else sarathi, mutant, competing=competing)
        except AssertionError:
            return True
        return False

    anyone = settings(phases=(Phase.generate,), max_examples=20_000, derandomize=True)
    assert find(sequences(), is_caught, settings=anyone)
