"""Without chunking, whose prompt is computed in a step?"""

from dataclasses import replace
from math import inf
from typing import Any

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


def test_one_that_is_longer_than_a_step_has_no_floor_and_holds_up_nobody_else() -> None:
    long = waits("long", 2, 0, 200)
    owed: dict[str, Any] = {"owed": (2,), "debts": (0.0, 0.0, 500.0)}
    assert tokens(plan([], [CRITICAL, long], limits=LIMITS, **owed)) == {"c": 50}
    assert tokens(plan([], [CRITICAL, long, BULK], limits=LIMITS, **owed)) == {"b": 40}
    assert tokens(plan([], [long], limits=LIMITS, **owed)) == {"long": 200}


def test_of_two_floors_the_second_gets_what_fits_beside_the_first() -> None:
    owed: dict[str, Any] = {"owed": (2, 1), "debts": (0.0, 99.0, 99.0)}
    short, long = waits("n", 1, 2, 20), waits("n", 1, 2, 60)
    assert tokens(plan([], [CRITICAL, short, BULK], limits=LIMITS, **owed)) == {"b": 40, "n": 20}
    assert tokens(plan([], [CRITICAL, long, BULK], limits=LIMITS, **owed)) == {"b": 40}
    overdue = waits("b", 2, 1, 600, overtaken=8)
    assert tokens(plan([], [CRITICAL, long, overdue], limits=LIMITS, **owed)) == {"b": 600}


def test_while_a_floor_saves_up_nothing_is_kept_for_its_prompt() -> None:
    limits = replace(LIMITS, tiers=(TierLimits(), TierLimits(), TierLimits(floor=0.3)))
    critical = [waits(f"c{number}", 0, 5 + number, 20) for number in range(6)]
    step = plan([], [*critical, waits("b", 2, 1, 60)], limits=limits, owed=(2,), debts=(0, 0, 5))
    assert tokens(step) == {"c0": 20, "c1": 20, "c2": 20}


def test_one_that_does_not_fit_beside_the_decodes_exceeds_the_step_or_makes_some_wait() -> None:
    """It is not dropped from the step, whatever the engine: nobody's prompt would be computed."""
    decodes = [decode(f"d{i}", 0, i) for i in range(6)]
    long = waits("b", 2, 1, 60)
    owed: dict[str, Any] = {"owed": (2,), "debts": (0.0, 0.0, 60.0)}
    step = plan(decodes, [CRITICAL, long], limits=LIMITS, **owed)
    assert tokens(step) == {**{f"d{i}": 1 for i in range(6)}, "b": 60}
    strict = replace(LIMITS, may_exceed_tokens=False)
    step = plan(decodes, [CRITICAL, long], limits=strict, **owed)
    assert tokens(step) == {**{f"d{i}": 1 for i in range(4)}, "b": 60}


def test_a_prompt_longer_than_the_step_leaves_the_decodes_of_floors_what_is_kept() -> None:
    """Tiers without a floor get none."""
    tiers = (TierLimits(), TierLimits(), TierLimits(floor=0.05))
    decodes = [decode("n", 1, 0), decode("b", 2, 1)]
    limits = replace(LIMITS, tiers=tiers)
    step = plan(decodes, [waits("c", 0, 5, 200)], limits=limits, owed=(2,), debts=(0.0, 0.0, 9.0))
    assert tokens(step) == {"c": 200, "b": 1}


def test_where_no_step_may_exceed_its_tokens_a_prompt_waits_until_it_fits() -> None:
    """Those behind it in its tier, too, so that decodes end; other tiers use the tokens."""
    limits = replace(LIMITS, max_num_seqs=32, may_exceed_tokens=False)
    decodes = [decode(f"d{i}", 0, i) for i in range(10)]
    waiting = [waits("c", 0, 50, 60), waits("c2", 0, 51, 4), waits("n", 1, 52, 20)]
    step = plan(decodes, waiting, limits=limits)
    assert tokens(step) == {**{f"d{i}": 1 for i in range(10)}, "n": 20}


@pytest.mark.parametrize("due_s", [0.0, inf])
@pytest.mark.parametrize(("debt", "num_decodes"), [(0.0, 4), (30.0, 4), (59.0, 4), (60.0, 10)])
def test_a_prompt_that_fills_the_step_goes_before_decodes_of_lower_tiers(
    due_s: float, debt: float, num_decodes: int
) -> None:
    """Be they due or owed: an engine that drops it from a step would otherwise do so each time.

    Only a floor that has saved up as much takes one step for its decodes.
    """
    tiers = (TierLimits(), TierLimits(floor=0.15), TierLimits())
    limits = replace(LIMITS, tiers=tiers, max_num_seqs=32, may_exceed_tokens=False)
    decodes = [decode(f"n{i}", 1, i)._replace(due_s=due_s) for i in range(10)]
    owed: dict[str, Any] = {"owed": (1,), "debts": (0.0, debt, 0.0)} if debt else {}
    planned = tokens(plan(decodes, [waits("c", 0, 50, 60)], limits=limits, **owed))
    assert sum(sequence_id.startswith("n") for sequence_id in planned) == num_decodes
    assert ("c" in planned) == (num_decodes == 4)


def test_what_is_cached_of_a_prompt_is_not_kept_for_it() -> None:
    limits = replace(LIMITS, max_num_seqs=32, may_exceed_tokens=False)
    decodes = [decode(f"n{i}", 1, i)._replace(due_s=0.0) for i in range(20)]
    step = plan(decodes, [waits("c", 0, 50, 60)], limits=limits, matches={"c": Match(48)})
    assert tokens(step) == {**{f"n{i}": 1 for i in range(20)}, "c": 12}


def test_a_floor_of_the_most_urgent_tier_does_not_go_past_what_is_overdue() -> None:
    """Bulk that no longer lets itself be overtaken is left room for, whoever is owed."""
    tiers = (TierLimits(floor=0.1), TierLimits(), TierLimits(floor=0.3))
    limits = StepLimits(3, 64, tiers, enable_chunked_prefill=False)
    residents = [decode("d", 0, 0, tokens=20), decode("x", 2, 1, tokens=47)]
    overdue = waits("b", 2, 2, 48, overtaken=8)
    step = plan(
        residents,
        [waits("c", 0, 5, 40), overdue],
        num_blocks=7,
        limits=limits,
        owed=(2, 0),
        debts=(99.0, 0.0, 99.0),
    )
    assert step.waits["c"] is Wait.HELD


def test_with_chunking_a_floor_has_its_share_of_a_step_instead() -> None:
    limits = StepLimits(8, 64, (TierLimits(), TierLimits(), TierLimits(floor=0.1)))
    step = plan([], [waits("c", 0, 5, 80), BULK], limits=limits, owed=(2,), debts=(0.0, 0.0, 40.0))
    assert tokens(step) == {"c": 51, "b": 13}
