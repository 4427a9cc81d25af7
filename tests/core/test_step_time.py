"""Does a step take the time that it may?"""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.budget import MIN_PROMPT_TOKENS
from headway.core.predictor import StepCoefficients
from headway.core.step import Candidate, Resident, StepLimits, TierLimits
from headway.core.tier import LatencyTarget
from tests.core.situation import PLAIN, decode, plan, situations, tokens, waits

PER_TOKEN = StepCoefficients(0.0, token_s=0.001)
COEFFICIENTS = st.builds(StepCoefficients, *(st.floats(0, 0.1) for _ in range(7)))


def test_decodes_that_are_due_keep_half() -> None:
    """A stream that is due gets its token while a more urgent prompt is computed, others wait."""
    due = decode("d", 1, 0)._replace(due_s=0.04)
    step = plan([due, decode("e", 1, 1)], [waits("c", 0, 9, 64)], cost=PER_TOKEN)
    assert tokens(step) == {"d": 1, "c": 63}
    many = [decode(f"d{i}", 1, i)._replace(due_s=0.01) for i in range(40)]
    limits = StepLimits(64, 64, PLAIN)
    step = plan(many, [waits("c", 0, 99, 64)], limits=limits, cost=PER_TOKEN)
    assert sum(n for i, n in tokens(step).items() if i != "c") == 32


def test_the_tightest_due_time_bounds_the_step() -> None:
    """A decode's own due time, the time a tier allows of which a request may arrive, or nothing."""
    tiers = (TierLimits(recent_s=0.024), TierLimits(), TierLimits())
    limits = StepLimits(32, 64, tiers)
    bulk = [waits("b", 2, 0, 400)]
    free = plan([], bulk, limits=limits, cost=PER_TOKEN)
    assert (sum(tokens(free).values()), free.budget_s) == (64, inf)
    arriving = plan([], bulk, limits=limits, recent={0}, cost=PER_TOKEN)
    assert (sum(tokens(arriving).values()), arriving.budget_s) == (24, 0.024)
    stream = decode("c", 0, 1)._replace(due_s=0.0185)
    due = plan([stream], bulk, limits=limits, recent={0}, cost=PER_TOKEN)
    assert (sum(tokens(due).values()), due.budget_s) == (18, 0.0185)


def test_a_step_ends_earlier_by_what_predictions_are_exceeded_by() -> None:
    stream = decode("c", 0, 1)._replace(due_s=0.02)
    for safety, budget_s in ((1.0, 0.02), (1.25, 0.016), (2.0, 0.01)):
        step = plan([stream], [waits("b", 2, 0, 400)], safety=safety, cost=PER_TOKEN)
        assert step.budget_s == pytest.approx(budget_s)
        assert sum(tokens(step).values()) == round(1000 * budget_s)


def test_a_due_time_does_not_count_while_a_more_urgent_prompt_waits() -> None:
    """Else normal's streams would shrink critical's prefill."""
    stream = decode("n", 1, 1)._replace(due_s=0.0185)
    step = plan([stream], [waits("c", 0, 9, 60)], cost=PER_TOKEN)
    assert tokens(step) == {"n": 1, "c": 60}
    assert sum(tokens(plan([stream], [waits("b", 2, 9, 60)], cost=PER_TOKEN)).values()) == 18


def test_who_has_nothing_to_compute_is_no_prompt_that_waits() -> None:
    """As one that sits out a step, or whose last token the step under way draws."""
    stream = decode("n", 1, 1)._replace(due_s=0.0185)
    ended = decode("c", 0, 2)._replace(num_tokens=20)
    assert ended.num_left == 0
    bulk = [waits("b", 2, 9, 60)]
    beside = plan([stream, ended], bulk, cost=PER_TOKEN)
    assert tokens(beside) == tokens(plan([stream], bulk, cost=PER_TOKEN)) == {"n": 1, "b": 17}


def test_a_late_stream_does_not_shrink_steps_to_nothing() -> None:
    """However late, the step is as long as the machine needs to be used well."""
    limits = StepLimits(32, 64, PLAIN, min_step_s=0.02)
    late = decode("c", 0, 1)._replace(due_s=-5.0)
    step = plan([late], [waits("b", 2, 9, 60)], limits=limits, cost=PER_TOKEN)
    assert tokens(step) == {"c": 1, "b": 19}


def test_no_arrival_that_may_come_shrinks_steps_to_nothing() -> None:
    """A tier with a tight TTFT and no pace: bulk's steps are still used well."""
    tiers = (TierLimits(recent_s=0.005), TierLimits(), TierLimits())
    limits = StepLimits(32, 64, tiers, min_step_s=0.02)
    step = plan([], [waits("b", 2, 9, 60)], limits=limits, cost=PER_TOKEN, recent={0})
    assert tokens(step) == {"b": 20}
    assert step.budget_s == 0.02


PACED = TierLimits(target=LatencyTarget(tpot_s=0.04))
LATE = decode("s", 0, 1)._replace(due_s=-5.0)


@pytest.mark.parametrize(("target", "computed"), [((0.05, None), 49), ((0.05, 0.061), 29)])
def test_a_late_stream_leaves_time_to_prompts_of_its_own_tier(
    target: tuple[float, float | None], computed: int
) -> None:
    """As much as it would leave them on time, by its pace and by its longest gap."""
    tpot_s, gap_s = target
    first = TierLimits(target=LatencyTarget(tpot_s=tpot_s, gap_s=gap_s))
    limits = StepLimits(32, 64, (first, TierLimits(), TierLimits()), min_step_s=0.02)
    step = plan([LATE], [waits("c", 0, 9, 60)], limits=limits, cost=PER_TOKEN)
    assert tokens(step) == {"s": 1, "c": computed}


def test_a_late_stream_leaves_other_tiers_no_more_than_before() -> None:
    """Bulk has only what the machine needs, whether a critical prompt cannot begin or not."""
    limits = StepLimits(2, 64, (PACED, TierLimits(), TierLimits()), min_step_s=0.02)
    bulk = Resident("b", 2, 2, 400, 0, 400, busy=True)
    alone = plan([LATE, bulk], [], limits=limits, cost=PER_TOKEN)
    blocked = plan([LATE, bulk], [waits("c", 0, 9, 60)], limits=limits, cost=PER_TOKEN)
    assert tokens(alone) == tokens(blocked) == {"s": 1, "b": 19}


def test_bulk_does_not_gain_by_what_late_streams_leave_to_prompts_of_their_tier() -> None:
    """Normal's prompt is short; the rest of its time is not bulk's."""
    tiers = (TierLimits(), PACED, TierLimits())
    limits = StepLimits(32, 64, tiers, min_step_s=0.02)
    late = LATE._replace(rank=1)
    step = plan([late], [waits("n", 1, 9, 5), waits("b", 2, 10, 60)], limits=limits, cost=PER_TOKEN)
    assert tokens(step) == {"s": 1, "n": 5, "b": 14}


def test_a_step_with_a_critical_prompt_is_not_filled_with_bulk() -> None:
    """The prompt's first token comes at the end of the step; bulk has the next one."""
    limits = StepLimits(32, 64, PLAIN, min_step_s=0.02)
    bulk = [decode(f"b{i}", 2, i) for i in range(30)]
    step = plan(bulk, [waits("c", 0, 99, 10)], limits=limits, cost=PER_TOKEN)
    assert (tokens(step)["c"], sum(tokens(step).values())) == (10, 20)
    assert len(tokens(plan(bulk, [waits("n", 1, 99, 10)], limits=limits, cost=PER_TOKEN))) == 31


def test_a_floor_waits_for_a_critical_prompt_as_long_as_g1_allows() -> None:
    """G1: 20 of 64 tokens fit, so the debt may be what the floor is of the 44 that do not."""
    tiers = (TierLimits(recent_s=0.02), TierLimits(), TierLimits(floor=0.25))
    limits = StepLimits(32, 64, tiers)
    bulk, critical = waits("b", 2, 0, 400), waits("c", 0, 1, 400)

    def bulk_tokens(debt: float, *others: Candidate) -> int:
        step = plan(
            [],
            [bulk, *others],
            limits=limits,
            owed=(2,),
            debts=(0.0, 0.0, debt),
            recent={0},
            cost=PER_TOKEN,
        )
        return tokens(step).get("b", 0)

    assert bulk_tokens(11.0, critical) == 0
    assert bulk_tokens(11.1, critical) == 10
    assert bulk_tokens(0.0) == 20


def test_contexts_count() -> None:
    """Forty long streams take the time of many more tokens than forty."""
    limits = StepLimits(64, 512, (TierLimits(recent_s=0.101), TierLimits(), TierLimits()))
    cost = StepCoefficients(0.01, token_s=0.0005, decode_context_s=2e-6)
    long = [decode(f"d{i}", 2, i, tokens=1000) for i in range(60)]
    step = plan(long, [], limits=limits, recent={0}, cost=cost)
    assert len(step.items) == 36
    assert cost.time_s(step.features) <= 0.101 < cost.time_s(step.features.plus_decode(1000))


def test_i7_a_prompt_does_not_creep_by_single_tokens() -> None:
    """One token of it is as cheap as a decode; what prefills cost once comes with more."""
    limits = StepLimits(32, 64, (TierLimits(recent_s=0.022), TierLimits(), TierLimits()))
    cost = StepCoefficients(0.0, token_s=0.001, prefill_s=0.01)
    waiting = [waits("n", 1, 0, 9), waits("b", 2, 1, 3)]
    step = plan([], waiting, limits=limits, recent={0}, cost=cost)
    assert tokens(step) == {"n": 9}
    assert cost.time_s(step.features) <= 0.022 < cost.time_s(step.features.plus_prefill(2, 0))


@pytest.mark.parametrize("factor", [0.0, 1e-3, 1e3])
def test_m11_a_wrong_prediction_shuts_nobody_out(factor: float) -> None:
    """Decodes and a prompt of rank 0 are in the plan, an owed tier gets its share."""
    tiers = (TierLimits(recent_s=0.05), TierLimits(floor=0.15), TierLimits(floor=0.05))
    limits = StepLimits(64, 512, tiers)
    cost = StepCoefficients(0.01 * factor, token_s=0.001 * factor)
    residents = [decode(f"c{i}", 0, i) for i in range(20)] + [decode("b", 2, 50)]
    waiting = [waits("c", 0, 99, 300), waits("n", 1, 98, 100)]
    step = plan(residents, waiting, limits=limits, owed=(1, 2), recent={0}, cost=cost)
    planned = tokens(step)
    assert all(f"c{i}" in planned for i in range(20))
    assert planned["c"] >= 16
    assert planned["b"] == 1
    assert planned["n"] >= 0.15 * 2 * 36


@settings(max_examples=300)
@given(
    situations(),
    COEFFICIENTS,
    st.floats(0.0, 1.0),
    st.lists(st.one_of(st.just(inf), st.floats(-1.0, 1.0)), min_size=6, max_size=6),
)
def test_i7_i8_the_step_is_as_long_as_it_may_be_and_never_empty(
    situation: tuple[list[Resident], list[Candidate], int, StepLimits],
    cost: StepCoefficients,
    recent_s: float,
    due_s: list[float],
) -> None:
    """I7, G6: beyond the budget are only rank 0's decodes and the least tokens of a step."""
    residents, candidates, num_blocks, limits = situation
    tiers = (TierLimits(recent_s=recent_s, preemptible=False), TierLimits(), TierLimits())
    limits = StepLimits(
        limits.max_num_seqs, limits.max_num_batched_tokens, tiers, min_step_s=recent_s / 2
    )
    residents = [r._replace(due_s=s) for r, s in zip(residents, due_s, strict=False)]
    step = plan(residents, candidates, num_blocks=num_blocks, limits=limits, recent={0}, cost=cost)
    assert bool(step.items) == bool(residents or candidates)
    assert step.budget_s <= recent_s
    ranks = {r.sequence_id: r.rank for r in residents}
    ranks |= {c.sequence_id: c.rank for c in candidates}
    urgent = sum(n for i, n in tokens(step).items() if ranks[i] == 0)
    if cost.time_s(step.features) > step.budget_s * (1 + 1e-9):
        assert step.features.num_tokens - urgent <= MIN_PROMPT_TOKENS
