"""Is a token due when its tier's targets say?"""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from headway.core.due import GAP_SHARE, RELEGATED_AFTER, next_token_due
from headway.core.tier import LatencyTarget

TARGET = LatencyTarget(tpot_s=0.05, gap_s=0.2)
GAP_S = GAP_SHARE * 0.2


def due(target: LatencyTarget, first_s: float, latest_s: float, num_output_tokens: int) -> float:
    return next_token_due(
        target, first_s=first_s, latest_s=latest_s, num_output_tokens=num_output_tokens
    )


def test_time_earned_by_being_early_may_be_spent_up_to_a_share_of_the_longest_gap() -> None:
    assert due(TARGET, 10.0, 10.0, 1) == 10.05
    assert due(TARGET, 10.0, 10.06, 3) == 10.15
    assert due(TARGET, 10.0, 10.02, 3) == 10.02 + GAP_S
    assert due(TARGET, 10.0, 10.10, 100) == 10.10 + GAP_S


def test_a_tier_without_targets_is_never_due() -> None:
    assert due(LatencyTarget(), 10.0, 10.0, 1) == inf
    assert due(LatencyTarget(gap_s=1.0), 10.0, 12.0, 5) == 12.0 + GAP_SHARE


def test_one_that_is_hopelessly_late_only_keeps_its_gap() -> None:
    late = 10.0 + 0.05 * (1 + RELEGATED_AFTER)
    assert due(TARGET, 10.0, late - 0.01, 1) == 10.05
    assert due(TARGET, 10.0, late + 0.01, 1) == late + 0.01 + GAP_S


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_whoever_meets_every_due_time_keeps_both_targets(shares: list[float]) -> None:
    """Mean time per token within TPOT, no gap above its share of the longest."""
    latest = first = 5.0
    for number, share in enumerate(shares, start=1):
        at = latest + share * (due(TARGET, first, latest, number) - latest)
        assert at - latest <= GAP_S + 1e-9
        latest = at
        assert (latest - first) / number <= 0.05 + 1e-9
