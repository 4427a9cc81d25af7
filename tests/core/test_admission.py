"""Who joins, who is shed, and is the hint to retry honest and within limits?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.admission import (
    UNKNOWN_RETRY_AFTER_S,
    Admit,
    Shed,
    admit,
    cost_ahead,
    predict_wait_s,
    retry_after_s,
)
from headway.core.backlog import Backlog
from headway.core.outcome import Outcome
from tests.core.scenario import request

COSTS = st.floats(0, 1e9)
RATES = st.floats(1e-3, 1e9)
FLOORS = st.floats(0, 0.9)


def full() -> Backlog:
    """Return a backlog that tenant a has filled."""
    backlog = Backlog(10, 1000)
    for number in range(10):
        backlog.add(request(f"a{number}", tenant="a"))
    return backlog


@pytest.mark.parametrize(
    ("tenant", "wait_s", "expires_at", "expected"),
    [
        ("b", None, None, Admit(("a9",), UNKNOWN_RETRY_AFTER_S)),
        ("b", 30.0, 130.1, Admit(("a9",), 30.0)),
        ("b", 30.0, 129.9, Shed(Outcome.REJECTED_SATURATED, 30.0)),
        ("b", None, 100.0, Shed(Outcome.REJECTED_SATURATED, UNKNOWN_RETRY_AFTER_S)),
        ("a", 30.0, None, Shed(Outcome.REJECTED_SATURATED, 30.0)),
        ("a", 0.001, None, Shed(Outcome.REJECTED_SATURATED, 1.0)),
        ("a", 5000.0, None, Shed(Outcome.REJECTED_SATURATED, 120.0)),
    ],
)
def test_the_written_order(
    tenant: str, wait_s: float | None, expires_at: float | None, expected: Admit | Shed
) -> None:
    entry = request("new", tenant=tenant)
    assert admit(entry, full(), wait_s, expires_at, 100.0) == expected


def test_there_is_room() -> None:
    assert admit(request("new"), Backlog(1, 1), 7.0, None, 0.0) == Admit((), 7.0)


@given(COSTS, COSTS, FLOORS, RATES)
def test_the_wait_is_that_of_priority_or_of_the_floor_if_sooner(
    ahead: float, above: float, floor: float, rate: float
) -> None:
    wait_s = predict_wait_s(ahead, above, floor, rate)
    assert wait_s is not None
    assert 0 <= wait_s <= (ahead + above) / rate
    assert floor == 0 or wait_s <= ahead / floor / rate
    more = predict_wait_s(ahead * 2 + 1, above * 2 + 1, floor, rate)
    assert more is not None
    assert more >= wait_s


def test_without_a_rate_nothing_is_predicted() -> None:
    assert predict_wait_s(10.0, 10.0, 0.1, None) is None
    assert predict_wait_s(10.0, 10.0, 0.1, 0.0) is None


@given(st.lists(COSTS, min_size=2, max_size=2).map(sorted), RATES)
def test_i15_retry_after_is_in_range_and_rises_with_the_backlog(
    costs: list[float], rate: float
) -> None:
    low, high = (retry_after_s(predict_wait_s(cost, 0.0, 0.0, rate)) for cost in costs)
    assert 1 <= low <= high <= 120
    assert 1 <= retry_after_s(None) <= 120


def test_only_the_own_share_of_the_backlog_is_ahead() -> None:
    backlog = Backlog(100, 10_000)
    for number in range(10):
        backlog.add(request(f"a{number}", tenant="a", cost=10.0))
    backlog.add(request("b0", tenant="b", cost=10.0, weight=3.0))
    queued_cost = 110.0
    assert cost_ahead(request("c0", tenant="c"), backlog, queued_cost) == 0.0
    assert cost_ahead(request("b1", tenant="b", weight=3.0), backlog, queued_cost) == pytest.approx(
        10.0 * 4 / 3
    )
    assert cost_ahead(request("a10", tenant="a"), backlog, queued_cost) == queued_cost
