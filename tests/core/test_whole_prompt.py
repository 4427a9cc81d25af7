"""Without chunking, whose prompt is computed in a step?"""

from dataclasses import replace

import pytest

from headway.core.step import Match, StepLimits, TierLimits, Wait
from tests.core.situation import PLAIN, decode, plan, tokens, waits

LIMITS = StepLimits(8, 64, PLAIN, enable_chunked_prefill=False)
CRITICAL, BULK = waits("c", 0, 5, 50), waits("b", 2, 1, 40)


def test_the_most_urgent_goes_first_while_no_floor_covers_a_prompt() -> None:
    step = plan([], [CRITICAL, BULK], limits=LIMITS, owed=(2,), debts=(0.0, 0.0, 39.9))
    assert tokens(step) == {"c": 50}
    assert step.waits == {"b": Wait.TOKENS}


def test_a_floor_that_covers_its_prompt_goes_before_it() -> None:
    step = plan([], [CRITICAL, BULK], limits=LIMITS, owed=(2,), debts=(0.0, 0.0, 40.0))
    assert tokens(step) == {"b": 40}
    assert step.waits == {"c": Wait.TOKENS}


def test_what_fits_beside_it_is_computed_in_the_same_step() -> None:
    residents, short = [decode("d", 0, 0)], waits("c", 0, 5, 20)
    step = plan(residents, [short, BULK], limits=LIMITS, owed=(2,), debts=(0.0, 0.0, 40.0))
    assert tokens(step) == {"d": 1, "b": 40, "c": 20}


def test_what_is_cached_of_a_prompt_need_not_be_saved_up_for() -> None:
    step = plan(
        [],
        [CRITICAL, BULK],
        limits=LIMITS,
        matches={"b": Match(32)},
        owed=(2,),
        debts=(0.0, 0.0, 8.0),
    )
    assert tokens(step) == {"b": 8, "c": 50}


@pytest.mark.parametrize(("debt", "first"), [(63.9, "c"), (64.0, "b")])
def test_a_prompt_longer_than_any_step_is_owed_with_a_full_one(debt: float, first: str) -> None:
    long = waits("b", 2, 1, 200)
    step = plan([], [CRITICAL, long], limits=LIMITS, owed=(2,), debts=(0.0, 0.0, debt))
    assert list(tokens(step)) == [first]


def test_one_that_does_not_fit_beside_the_decodes_goes_where_others_would() -> None:
    """An engine that drops it from the step would otherwise compute nobody's."""
    decodes = [decode(f"d{i}", 0, i) for i in range(6)]
    long, planned = waits("b", 2, 1, 60), {f"d{i}": 1 for i in range(6)}
    step = plan(decodes, [CRITICAL, long], limits=LIMITS, owed=(2,), debts=(0.0, 0.0, 60.0))
    assert tokens(step) == {**planned, "b": 60}
    strict = replace(LIMITS, may_exceed_tokens=False)
    step = plan(decodes, [CRITICAL, long], limits=strict, owed=(2,), debts=(0.0, 0.0, 60.0))
    assert tokens(step) == {**planned, "c": 50}


def test_a_prompt_longer_than_the_step_leaves_the_decodes_of_floors_what_is_kept() -> None:
    """Tiers without a floor get none."""
    tiers = (TierLimits(), TierLimits(), TierLimits(floor=0.05))
    decodes = [decode("n", 1, 0), decode("b", 2, 1)]
    limits = replace(LIMITS, tiers=tiers)
    step = plan(decodes, [waits("c", 0, 5, 200)], limits=limits, owed=(2,), debts=(0.0, 0.0, 9.0))
    assert tokens(step) == {"c": 200, "b": 1}


def test_with_chunking_a_floor_has_its_share_of_a_step_instead() -> None:
    step = plan([], [CRITICAL, BULK], owed=(2,), debts=(0.0, 0.0, 40.0))
    assert tokens(step)["c"] == 50
