"""Is the plan within its limits, and does it serve whom it must?"""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.step import Candidate, Match, Resident, StepLimits, TierLimits, Wait
from tests.core.situation import (
    BLOCK,
    PLAIN,
    blocks,
    decode,
    plan,
    prefill,
    situations,
    tokens,
    waits,
)


def test_all_decodes_and_a_prefill_that_fills_up() -> None:
    """Every decode gets its token, a long prompt takes the rest."""
    step = plan([decode("d", 1, 0), decode("e", 2, 1)], [waits("p", 2, 2, 400)])
    assert tokens(step) == {"d": 1, "e": 1, "p": 62}


def test_prefill_of_a_more_urgent_tier_parks_decodes_without_target() -> None:
    """Parked: no token, not preempted, with the reason."""
    decodes = [decode(f"d{i}", 2, i) for i in range(8)]
    step = plan(decodes, [waits("c", 0, 99, 64)])
    assert tokens(step) == {"c": 64}
    assert step.preempted == ()
    assert set(step.waits.values()) == {Wait.TOKENS}


def test_parked_decodes_take_turns() -> None:
    """Clause 5: nobody is the fixed favourite."""
    limits = StepLimits(max_num_seqs=32, max_num_batched_tokens=3, tiers=PLAIN)
    turns = [0] * 8
    for number in range(1, 17):
        decodes = [decode(f"d{i}", 2, i, last_step=turns[i]) for i in range(8)]
        for sequence_id in tokens(plan(decodes, [], limits=limits)):
            turns[int(sequence_id[1:])] = number
    assert min(turns) >= 14


def test_a_long_prefill_leaves_half_to_those_behind() -> None:
    """A8: a short prompt of the same tier does not wait for a long one."""
    step = plan([prefill("long", 1, 0, 2000)], [waits("short", 1, 1, 20)])
    assert tokens(step) == {"long": 44, "short": 20}


def test_what_those_behind_a_long_prompt_do_not_need_it_gets_back() -> None:
    """G6: no token is left unused, whether the long one has begun or is admitted now."""
    behind = waits("short", 1, 1, 4)
    assert tokens(plan([prefill("long", 1, 0, 2000)], [behind])) == {"long": 60, "short": 4}
    assert tokens(plan([], [waits("long", 1, 0, 2000), behind])) == {"long": 60, "short": 4}


def test_an_owed_tier_gets_its_share_first() -> None:
    """G1: the floor is kept from the more urgent, in tokens."""
    tiers = (TierLimits(), TierLimits(floor=0.15), TierLimits(floor=0.05))
    limits = StepLimits(max_num_seqs=32, max_num_batched_tokens=100, tiers=tiers)
    flood = [waits(f"c{i}", 0, i, 80) for i in range(5)]
    step = plan([], [*flood, waits("b", 2, 9, 80)], limits=limits, owed=(2,))
    assert tokens(step)["b"] == 10
    assert sum(tokens(step).values()) == 100
    assert "b" not in tokens(plan([], [*flood, waits("b", 2, 9, 80)], limits=limits))


def test_one_victim_for_one_slot() -> None:
    """A1: slots are full with bulk, blocks plentiful; one gives way, but not to an equal."""
    limits = StepLimits(max_num_seqs=2, max_num_batched_tokens=16, tiers=PLAIN)
    full = [decode("a", 2, 0, tokens=40), decode("b", 2, 1, tokens=30)]
    step = plan(full, [waits("c", 0, 5, 8)], limits=limits)
    assert step.preempted == ("b",)
    assert tokens(step) == {"c": 8, "a": 1}
    equal = plan(full, [waits("c", 2, 5, 8)], limits=limits)
    assert (equal.preempted, equal.waits["c"]) == ((), Wait.SLOTS)


def test_g1_the_oldest_of_an_owed_tier_keeps_its_blocks_and_its_slot() -> None:
    """Blocks from all but rank 0, the slot from everybody; without a claim from nobody."""
    held = [decode("anchor", 2, 0, tokens=100)]
    normal, critical = waits("n", 1, 5, 60), waits("c", 0, 6, 60)
    assert plan(held, [normal], num_blocks=8).preempted == ("anchor",)
    assert plan(held, [normal], num_blocks=8, owed=(2,)).preempted == ()
    assert plan(held, [critical], num_blocks=8, owed=(2,)).preempted == ("anchor",)
    one = StepLimits(max_num_seqs=1, max_num_batched_tokens=64, tiers=PLAIN)
    assert plan(held, [critical], limits=one).preempted == ("anchor",)
    assert plan(held, [critical], limits=one, owed=(2,)).preempted == ()


def test_reserves_are_left_free_for_the_more_urgent() -> None:
    """Lower tiers leave slots and blocks; an empty engine lends them out."""
    tiers = (TierLimits(reserved_slots=1, reserved_blocks=4), TierLimits(), TierLimits())
    limits = StepLimits(max_num_seqs=3, max_num_batched_tokens=64, tiers=tiers)
    many = [waits(f"b{i}", 2, i, 8) for i in range(3)]
    assert set(tokens(plan([], many, limits=limits))) == {"b0", "b1"}
    large = waits("large", 2, 5, 100)
    assert "large" in tokens(plan([], [large], limits=limits, num_blocks=8))
    held = plan([decode("d", 2, 0, tokens=10)], [large], limits=limits, num_blocks=9)
    assert held.waits["large"] is Wait.BLOCKS


def test_i5_a_reserve_that_has_grown_keeps_no_tier_from_the_slots_of_those_below_it() -> None:
    """Bulk filled what was left while less was kept, and now gives that up as well."""
    tiers = (TierLimits(preemptible=False, reserved_slots=4), TierLimits(), TierLimits())
    limits = StepLimits(max_num_seqs=8, max_num_batched_tokens=64, tiers=tiers)
    bulk = [decode(f"b{i}", 2, i) for i in range(7)]
    step = plan(bulk, [waits("n", 1, 99, 16)], limits=limits, demand=(3, 0))
    assert len(step.preempted) == 3
    assert tokens(step)["n"] == 16
    fewer = StepLimits(max_num_seqs=6, max_num_batched_tokens=64, tiers=tiers)
    assert len(plan(bulk, [waits("n", 1, 99, 16)], limits=fewer, demand=(3, 0)).preempted) == 5
    normal = [decode(f"n{i}", 1, i) for i in range(7)]
    held = plan(normal, [waits("n", 1, 99, 16)], limits=limits, demand=(3, 0))
    assert held.waits["n"] is Wait.SLOTS


def test_of_a_reserve_only_what_may_be_asked_for_is_kept() -> None:
    """Four slots and forty blocks are reserved; one slot and two blocks are likely to be needed."""
    tiers = (TierLimits(reserved_slots=4, reserved_blocks=40), TierLimits(), TierLimits())
    limits = StepLimits(max_num_seqs=6, max_num_batched_tokens=512, tiers=tiers)
    many = [waits(f"b{i}", 2, i, 16) for i in range(8)]
    held = [decode("d", 2, 99, tokens=10)]
    assert len(tokens(plan(held, many, limits=limits, num_blocks=50))) == 2
    assert len(tokens(plan(held, many, limits=limits, num_blocks=50, demand=(1, 2)))) == 5
    assert len(tokens(plan(held, many, limits=limits, num_blocks=6, demand=(1, 2)))) == 4


def test_who_was_preempted_leaves_the_others_room_to_grow() -> None:
    """A block for each resident, else it would give way to them at once."""
    running = [decode(f"d{i}", 1, i, tokens=16 * i + 15) for i in range(3)]
    again = waits("again", 1, 9, 32)._replace(was_preempted=True)
    first_time = waits("new", 1, 9, 32)
    assert "new" in tokens(plan(running, [first_time], num_blocks=8))
    assert "again" not in tokens(plan(running, [again], num_blocks=8))
    assert "again" in tokens(plan(running, [again], num_blocks=11))


def test_residents_keep_the_blocks_their_prompts_need() -> None:
    """A10(d): no second half-loaded prompt that would only push out the first."""
    step = plan([prefill("a", 1, 0, 100)], [waits("b", 1, 1, 80)], num_blocks=12)
    assert set(tokens(step)) == {"a"}
    assert step.waits["b"] is Wait.BLOCKS


@pytest.mark.parametrize(("watermark", "beside_others"), [(0, True), (1, False)])
def test_an_admission_beside_others_leaves_the_watermark(
    watermark: int, beside_others: bool
) -> None:
    limits = StepLimits(32, 64, PLAIN, watermark_blocks=watermark)
    running, new = [decode("d", 1, 0)], waits("new", 1, 1, 8 * BLOCK)
    assert ("new" in tokens(plan(running, [new], num_blocks=10, limits=limits))) is beside_others
    assert "new" in tokens(plan([], [new], num_blocks=8, limits=limits))


def test_the_tokens_of_one_who_gives_way_are_for_others() -> None:
    """A bulk decode that was due is planned first, and loses its blocks to a critical prompt."""
    due = decode("d", 2, 0, tokens=100)._replace(due_s=0.0)
    step = plan([due], [waits("c", 0, 1, 64)], num_blocks=8)
    assert step.preempted == ("d",)
    assert tokens(step) == {"c": 64}


def test_who_does_not_fit_is_overtaken_a_bounded_number_of_times() -> None:
    """A10(c): then nothing behind it is admitted until it fits."""
    running = [decode("d", 0, 0, tokens=100)]
    large, small = waits("large", 0, 1, 120), waits("small", 1, 2, 10)
    step = plan(running, [large, small], num_blocks=12)
    assert "small" in tokens(step)
    assert step.overtaken == {"large": 1}
    held = plan(running, [waits("large", 0, 1, 120, overtaken=8), small], num_blocks=12)
    assert tokens(held) == {"d": 1}


def test_an_overdue_floor_goes_before_the_more_urgent() -> None:
    """G1 for slots: a tier that is owed, and was overtaken often enough, holds the others."""
    limits = StepLimits(max_num_seqs=2, max_num_batched_tokens=64, tiers=PLAIN)
    waiting = [waits("c", 0, 5, 8), waits("b", 2, 1, 8, overtaken=8)]
    step = plan([decode("x", 0, 0)], waiting, limits=limits, owed=(2,))
    assert "b" in tokens(step)
    assert "c" not in tokens(step)


def test_an_overdue_floor_takes_no_more_than_its_share_before_the_more_urgent() -> None:
    """G2: neither its own long prompt nor those behind it take critical's step."""
    tiers = (TierLimits(preemptible=False), TierLimits(), TierLimits(floor=0.05))
    limits = StepLimits(max_num_seqs=8, max_num_batched_tokens=64, tiers=tiers)
    overdue = [waits("b", 2, 1, 300, overtaken=8), waits("next", 2, 2, 300)]
    step = plan([], [waits("c", 0, 5, 40), *overdue], limits=limits, owed=(2,))
    assert tokens(step)["c"] == 40
    assert tokens(step)["b"] >= 7


def test_whole_prompts_without_chunking() -> None:
    """One prompt may exceed the budget, alone; the next waits its turn."""
    limits = StepLimits(8, 16, PLAIN, enable_chunked_prefill=False)
    step = plan([decode("d", 1, 0)], [waits("p", 1, 1, 50), waits("q", 1, 2, 50)], limits=limits)
    assert tokens(step) == {"d": 1, "p": 50}


def test_a_fork_is_not_planned_from_a_victim() -> None:
    """A sibling that gives way in the same step is nothing to start from."""
    limits = StepLimits(2, 64, PLAIN)
    residents = [decode("parent", 2, 0, tokens=40), decode("c", 0, 1)]
    waiting = [waits("c2", 0, 5, 8), waits("child", 2, 2, 41)]
    matches = {"child": Match(39, 0, "parent")}
    step = plan(residents, waiting, limits=limits, matches=matches)
    assert step.preempted == ("parent",)
    assert "child" not in tokens(step)


def test_when_nobody_may_give_way_the_oldest_of_the_most_urgent_goes_on() -> None:
    """G6: even where a tier is exempt from preemption, nothing stands still."""
    exempt = (TierLimits(), TierLimits(preemptible=False))
    limits = StepLimits(8, 64, exempt)
    stuck = [decode("c", 0, 0, tokens=96), decode("n", 1, 1, tokens=96)]
    step = plan(stuck, [], num_blocks=12, limits=limits)
    assert tokens(step) == {"c": 1}
    assert step.preempted == ("n",)


@settings(max_examples=600, deadline=None)
@given(
    situations(),
    st.sampled_from([(), (2,), (1, 2), (2, 1), (0, 2)]),
    st.sampled_from([(), (9.0, 9.0, 9.0), (500.0, 500.0, 500.0)]),
    st.booleans(),
)
def test_every_plan_can_be_done(
    situation: tuple[list[Resident], list[Candidate], int, StepLimits],
    owed: tuple[int, ...],
    debts: tuple[float, ...],
    may_exceed: bool,
) -> None:
    """Clauses 1, 3 and 4, and A2: what is planned runs, and nobody both runs and gives way."""
    residents, candidates, num_blocks, limits = situation
    floors = (0.1, 0.3, 0.3) if owed else (0.0, 0.0, 0.0)
    tiers = tuple(replace(t, floor=f) for t, f in zip(limits.tiers, floors, strict=True))
    limits = replace(limits, tiers=tiers, may_exceed_tokens=may_exceed)
    if not (may_exceed or limits.enable_chunked_prefill):
        most = max([limits.max_num_batched_tokens, *(c.num_tokens for c in candidates)])
        limits = replace(limits, max_num_batched_tokens=most)
    step = plan(residents, candidates, num_blocks=num_blocks, limits=limits, owed=owed, debts=debts)
    planned = tokens(step)
    assert len(planned) == len(step.items)
    assert not planned.keys() & set(step.preempted)
    assert bool(planned) == bool(residents or candidates)
    held, slots = 0, 0
    for r in residents:
        if r.sequence_id not in step.preempted:
            slots += 1
            held += blocks(r.num_computed + planned.get(r.sequence_id, 0))
        assert planned.get(r.sequence_id, 1) >= 1
        assert planned.get(r.sequence_id, 0) <= r.num_left
    for c in candidates:
        slots += c.sequence_id in planned
        held += blocks(planned.get(c.sequence_id, 0))
    assert held <= num_blocks
    assert slots <= limits.max_num_seqs
    longest = max(planned.values(), default=0)
    exceeding = 0 if limits.enable_chunked_prefill or not may_exceed else longest
    assert sum(planned.values()) - exceeding <= limits.max_num_batched_tokens


@settings(max_examples=500, deadline=None)
@given(situations(), st.booleans(), st.sampled_from([0.0, inf]))
def test_the_first_critical_is_in_the_first_plan(
    situation: tuple[list[Resident], list[Candidate], int, StepLimits],
    may_exceed: bool,
    due_s: float,
) -> None:
    """G2: whatever lower tiers run and wait, a critical request alone in its tier is planned.

    Be their decodes due, and the prompt one that only an empty step can hold.
    """
    residents, candidates, num_blocks, limits = situation
    lower = [r._replace(due_s=due_s) for r in residents if r.rank > 0]
    waiting = [c for c in candidates if c.rank > 0]
    size = min(60, num_blocks * BLOCK)
    arrival = Candidate("critical", 0, 999, size, size)
    most = max(2, limits.max_num_batched_tokens)  # of which decodes that are due leave half
    if not (may_exceed or limits.enable_chunked_prefill):
        most = max(most, size)
    limits = replace(limits, may_exceed_tokens=may_exceed, max_num_batched_tokens=most)
    step = plan(lower, [*waiting, arrival], num_blocks=num_blocks, limits=limits)
    assert "critical" in tokens(step)
