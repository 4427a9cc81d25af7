"""How many nodes it would take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.replicas import (
    BACKLOG_S,
    DOWN_S,
    SLACK,
    UP_S,
    Demand,
    ReplicaAdvisor,
    nodes_needed,
)

NEEDS = st.lists(st.tuples(st.floats(0, 120), st.floats(0, 20)), max_size=60)


def test_the_need_is_load_with_headroom_and_backlog_and_deadlines() -> None:
    demand = Demand(urgent_rate=100.0, urgent_backlog=30.0 * BACKLOG_S, deadline_rate=20.0)
    assert nodes_needed(demand, 50.0, 0.3) == pytest.approx((130 + 30 + 20) / 50)
    assert nodes_needed(Demand(urgent_rate=0.0, urgent_backlog=0.0), 50.0, 0.3) == 0


def test_more_are_asked_for_only_after_they_were_needed_for_a_while() -> None:
    advisor = ReplicaAdvisor()
    assert advisor.advise(None, 2, 0.0) == 2
    assert advisor.advise(4.2, 2, 1.0) == 2
    assert advisor.advise(1.9, 2, UP_S) == 2
    assert advisor.advise(4.2, 2, UP_S + 1) == 2
    assert advisor.advise(4.2, 2, 2 * UP_S + 1) == 5
    # Until the nodes are there, the wish stays.
    assert advisor.advise(4.2, 2, 2 * UP_S + 2) == 5


def test_fewer_are_asked_for_after_long_and_enough_for_the_worst_of_it() -> None:
    advisor = ReplicaAdvisor()
    assert advisor.advise(9.0, 10, 0.0) == 10
    assert advisor.advise(2.0, 10, 10.0) == 10
    assert advisor.advise(5.5, 10, 300.0) == 10
    assert advisor.advise(2.0, 10, 9.0 + DOWN_S) == 10
    assert advisor.advise(2.0, 10, 10.0 + DOWN_S) == 6
    assert advisor.advise(0.0, 6, 20.0 + DOWN_S) == 6


def test_each_fall_counts_what_was_needed_since_the_one_before() -> None:
    advisor = ReplicaAdvisor()
    needs = enumerate((6.9, 1.9, 0.5, 0.5))
    desired = [advisor.advise(needed, 10, step * DOWN_S) for step, needed in needs]
    assert desired == [10, 7, 7, 1]


def test_a_need_within_the_slack_changes_nothing() -> None:
    advisor = ReplicaAdvisor()
    for step in range(1000):
        assert advisor.advise(10 * SLACK if step % 2 else 10.0, 10, 60.0 * step) == 10


@given(st.integers(0, 100), NEEDS)
def test_it_never_flaps_and_never_asks_for_none(
    live: int, needs: list[tuple[float, float]]
) -> None:
    advisor, now, before, changed_at = ReplicaAdvisor(), 0.0, max(1, live), 0.0
    for seconds, needed in needs:
        now += seconds
        desired = advisor.advise(needed, live, now)
        assert desired >= 1
        if desired > before:
            assert now - changed_at >= UP_S
            assert desired >= needed
        if desired < before:
            assert now - changed_at >= DOWN_S
        if desired != before:
            before, changed_at = desired, now
