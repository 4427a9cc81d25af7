"""What the tiers ask of the nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.backlog import QueuedRequest
from headway.core.replicas import DOWN_S, UP_S
from headway.core.tier import Tiers
from headway.flowcontrol.demand import DEADLINE_STEP_S, DemandMeter, ReplicaMeter

TIERS = Tiers()


def request(rank: int, cost: float = 100.0, deadline: float | None = None) -> QueuedRequest:
    return QueuedRequest(
        request_id="r",
        rank=rank,
        tenant="t",
        cost=cost,
        tokens=1,
        arrival=0.0,
        deadline=deadline,
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(1, 1e6), st.none() | st.floats(0, 1e5))))
def test_what_leaves_is_forgotten_exactly(items: list[tuple[int, float, float | None]]) -> None:
    meter = DemandMeter(TIERS)
    requests = [request(*item) for item in items]
    for one in requests:
        meter.joined(one)
    waiting = sum(r.cost for r in requests if r.rank < 2)
    assert meter.demand(0.0).urgent_backlog == pytest.approx(waiting)
    for one in reversed(requests):
        meter.left(one)
    meter.check_idle()
    demand = meter.demand(0.0)
    assert (demand.urgent_backlog, demand.deadline_rate) == (0.0, 0.0)


def test_a_steady_load_is_measured_early_and_late() -> None:
    meter = DemandMeter(TIERS)
    for second in range(1, 400):
        meter.served(1, 50.0, float(second))
        meter.served(2, 5000.0, float(second))
        if second >= 10:
            assert meter.demand(float(second)).urgent_rate == pytest.approx(50.0, rel=0.15)
    assert meter.demand(1000.0).urgent_rate < 1.0


def test_deadlines_need_the_rate_of_the_tightest() -> None:
    meter = DemandMeter(TIERS)
    meter.joined(request(2, 6000.0, 10 * DEADLINE_STEP_S))
    assert meter.demand(0.0).deadline_rate == pytest.approx(10.0)
    meter.joined(request(2, 6000.0, 100 * DEADLINE_STEP_S))
    assert meter.demand(0.0).deadline_rate == pytest.approx(10.0)
    meter.joined(request(2, 120_000.0, 20 * DEADLINE_STEP_S))
    assert meter.demand(0.0).deadline_rate == pytest.approx(126_000 / (20 * DEADLINE_STEP_S))
    # One that is over asks for no more than one that is nearly so.
    assert meter.demand(1e6).deadline_rate == pytest.approx(132_000 / DEADLINE_STEP_S)


def advised(meter: DemandMeter, seconds: float, live: int = 2) -> int:
    """Return what is advised after so long; a node gives 100 cost per second."""
    replicas = ReplicaMeter(meter, 0.3)
    desired = 0
    for now in range(int(seconds)):
        desired = replicas.desired(100.0 * live, live, float(now))
    return desired


def test_bulk_alone_never_asks_for_nodes_and_a_deadline_at_risk_does() -> None:
    meter = DemandMeter(TIERS)
    for _ in range(10_000):
        meter.joined(request(2))
    assert advised(meter, 2 * UP_S) == 2
    assert advised(meter, 2 * DOWN_S) == 1
    relaxed = DemandMeter(TIERS)
    relaxed.joined(request(2, 100_000.0, 3600.0))
    assert advised(relaxed, 2 * UP_S) == 2
    pressed = DemandMeter(TIERS)
    pressed.joined(request(2, 1_000_000.0, 3600.0))
    assert advised(pressed, 2 * UP_S) == 3


def test_urgent_work_that_waits_asks_for_nodes() -> None:
    meter = DemandMeter(TIERS)
    for _ in range(300):
        meter.joined(request(1))
    assert advised(meter, 2 * UP_S) == 10


def test_while_no_rate_is_known_the_nodes_there_are_suffice() -> None:
    replicas = ReplicaMeter(DemandMeter(TIERS), 0.3)
    assert [replicas.desired(None, live, 0.0) for live in (3, 0, 5)] == [3, 1, 5]
