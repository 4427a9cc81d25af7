"""Do estimates for one request read the correction that outcomes of its kind have trained?"""

from math import inf

import pytest

from headway.core.backlog import QueuedRequest
from headway.core.forecast import Forecaster
from headway.core.need import UNBOUNDED
from headway.core.promotion import Plan
from headway.core.waiting import Waiting
from tests.core.scenario import PATIENT, request

BULK = 2
SETTLED_S = 100.0
DEADLINE = 10_000.0


@pytest.fixture
def waiting() -> Waiting:
    """Return a queue in which one bulk request of somebody else waits."""
    waiting = Waiting(PATIENT, UNBOUNDED, by_tier=True)
    waiting.join(bulk("other", "z"), None)
    return waiting


@pytest.fixture
def forecast(waiting: Waiting) -> Forecaster:
    """Return the estimates for that queue, which drains at a cost of ten per second."""
    forecast = Forecaster(waiting, 3)
    for second in range(int(SETTLED_S)):
        forecast.settled(10.0, 1.0, float(second), known=True)
    return forecast


def bulk(name: str, tenant: str = "d", deadline: float | None = None) -> QueuedRequest:
    return request(name, BULK, tenant, cost=10.0, deadline=deadline)


def test_laxity_reads_what_the_first_of_their_flow_have_taught(forecast: Forecaster) -> None:
    entry = bulk("r", deadline=DEADLINE)
    before_s = p50_s(forecast, entry)
    for number in range(100):
        one = bulk(f"d{number}")
        forecast.joined(one, forecast.wait(one, SETTLED_S), SETTLED_S)
        forecast.served(one.request_id, SETTLED_S + 100.0)
    after_s = p50_s(forecast, entry)
    assert after_s > 1.5 * before_s
    plan = Plan(DEADLINE, 1.0, ahead=0.0, served=0.0)
    assert forecast.laxity_s(entry, plan, SETTLED_S) == pytest.approx(
        DEADLINE - SETTLED_S - after_s - 1.0
    )


def test_no_more_is_ahead_of_a_deadline_than_waits(waiting: Waiting, forecast: Forecaster) -> None:
    """Of a backlog of 5,000 that stood there at its arrival all but ten was cancelled."""
    entry = bulk("r", deadline=DEADLINE)
    waiting.join(entry, None)
    cancelled, left = (
        forecast.laxity_s(entry, Plan(DEADLINE, 1.0, ahead, served=0.0), SETTLED_S)
        for ahead in (5000.0, 10.0)
    )
    assert cancelled == left > DEADLINE - SETTLED_S - 10.0


def test_a_wait_teaches_the_correction_that_its_estimate_came_from(
    waiting: Waiting, forecast: Forecaster
) -> None:
    first = bulk("first")
    before_s = p50_s(forecast, first)
    waiting.join(bulk("own"), None)
    told = forecast.wait(first, SETTLED_S)
    waiting.remove("own")
    forecast.joined(first, told, SETTLED_S)
    forecast.served("first", SETTLED_S + 1000.0)
    assert p50_s(forecast, first) == before_s


def test_a_queue_fills_when_the_first_joins_it() -> None:
    """Two of three ends find somebody waiting, ten seconds after the first of those came."""
    waiting = Waiting(PATIENT, UNBOUNDED, by_tier=True)
    forecast = Forecaster(waiting, 3)
    for at in (0.0, 5.0):
        one = bulk(f"at {at}")
        forecast.joined(one, forecast.wait(one, at), at)
        waiting.join(one, None)
    for number in range(3):
        forecast.settled(10.0, 20.0, 10.0, known=True)
        waiting.remove(f"at {5.0 * number}")
    assert forecast.drain.rate == pytest.approx(3.0)


def p50_s(forecast: Forecaster, entry: QueuedRequest) -> float:
    wait = forecast.wait(entry, SETTLED_S)[1]
    assert wait is not None
    return wait.p50_s


def test_integrity_is_that_every_estimate_counts_once(
    forecast: Forecaster,
) -> None:
    model = (1.0, 1.0, inf, 0.0)
    forecast.tell("other", BULK, model, 1.0, SETTLED_S)
    forecast.check_integrity()
    forecast.tell("other", BULK, model, 1.0, SETTLED_S)
    with pytest.raises(AssertionError, match="lost"):
        forecast.check_integrity()


def test_integrity_is_that_every_estimate_is_of_one_that_waits(forecast: Forecaster) -> None:
    forecast.tell("nobody", BULK, (1.0, 1.0, inf, 0.0), 1.0, SETTLED_S)
    with pytest.raises(AssertionError, match="left over"):
        forecast.check_integrity()


def test_integrity_is_that_whoever_has_a_time_limit_will_expire(waiting: Waiting) -> None:
    waiting.check_integrity()
    waiting.join(bulk("r", deadline=DEADLINE), None)
    with pytest.raises(AssertionError, match="time limit"):
        waiting.check_integrity()
