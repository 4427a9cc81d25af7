"""Does the right request leave, once, and does nothing stay idle or left over?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.admission import Admit, Shed, ShedReason
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch, Idle, WaitUntil
from headway.core.dispatch import MAX_EXPIRED, Dispatcher
from headway.core.outcome import Outcome
from headway.core.tier import DEFAULT_TIERS, Tiers
from tests.core.scenario import NO_FLOORS, PATIENT, bounded, request
from tests.core.windows import shortfall

ALL_FREE = (1, 1, 1)
FLOORS = tuple(tier.floor for tier in DEFAULT_TIERS)


def dispatcher(tiers: Tiers = PATIENT, policy: str = "qos") -> Dispatcher:
    """Return a dispatcher with default prices."""
    return Dispatcher(tiers, Prices(), policy="fcfs" if policy == "fcfs" else "qos")


def test_nothing_waits_nothing_can_expire_something_can() -> None:
    flow = dispatcher(Tiers())
    assert flow.next(0.0, ALL_FREE) == Idle()
    flow.enqueue(request("bulk", rank=2), 0.0)
    assert flow.next(0.0, (1, 1, 0)) == Idle()
    flow.enqueue(request("critical", rank=0, arrival=1.0), 1.0)
    assert flow.next(1.0, (0, 0, 0)) == WaitUntil(6.0)
    assert flow.next(1.0, ALL_FREE) == Dispatch("critical")
    assert flow.next(1.0, ALL_FREE) == Dispatch("bulk")
    assert (len(flow), flow.num_sent) == (0, 2)


def test_what_has_expired_is_never_dispatched() -> None:
    flow = dispatcher(Tiers())
    flow.enqueue(request("late", rank=0), 0.0)
    flow.enqueue(request("other", rank=1), 0.0)
    assert flow.next(5.0, ALL_FREE) == WaitUntil(5.0)
    assert flow.expired(5.0) == ["late"]
    assert flow.expired(5.0) == []
    assert flow.next(5.0, ALL_FREE) == Dispatch("other")


def test_of_many_that_have_expired_some_leave_in_one_call_and_the_others_at_once() -> None:
    flow = dispatcher(Tiers())
    for number in range(MAX_EXPIRED + 2):
        flow.enqueue(request(f"r{number}", rank=1, deadline=3.0), 0.0)
    flow.enqueue(request("other", rank=1), 0.0)
    assert flow.expired(4.0) == [f"r{number}" for number in range(MAX_EXPIRED)]
    assert flow.next(4.0, ALL_FREE) == WaitUntil(3.0)
    assert flow.expired(4.0) == [f"r{MAX_EXPIRED}", f"r{MAX_EXPIRED + 1}"]
    assert flow.next(4.0, ALL_FREE) == Dispatch("other")


def test_the_deadline_or_the_tiers_limit_whichever_is_sooner() -> None:
    flow = dispatcher(Tiers())
    flow.enqueue(request("limit", rank=0, deadline=50.0), 0.0)
    flow.enqueue(request("deadline", rank=1, deadline=3.0), 0.0)
    flow.enqueue(request("bulk", rank=2, deadline=70.0), 0.0)
    assert flow.expired(2.9) == []
    assert flow.expired(100.0) == ["deadline", "limit", "bulk"]


def test_a_tier_without_credit_lets_the_next_one_go() -> None:
    flow = dispatcher()
    flow.enqueue(request("critical", rank=0), 0.0)
    flow.enqueue(request("normal", rank=1), 0.0)
    assert flow.next(0.0, (0, 1, 1)) == Dispatch("normal")
    assert flow.next(0.0, (0, 1, 1)) == Idle()


def test_an_owed_tier_without_credit_does_not_hold_the_others() -> None:
    flow = dispatcher()
    flow.enqueue(request("bulk", rank=2), 0.0)
    for number in range(100):
        flow.enqueue(request(f"c{number}", rank=0), 0.0)
    for number in range(50):
        assert flow.next(0.0, (1, 1, 0)) == Dispatch(f"c{number}")
    leaving = [flow.next(0.0, ALL_FREE) for _ in range(25)]
    assert leaving.index(Dispatch("bulk")) >= 19, "what it could not use was not saved up"


@pytest.mark.parametrize("actual", [1.0, 8.0, 80.0])
def test_what_was_sent_without_a_credit_for_bulk_settles_without_its_claim(actual: float) -> None:
    """G2: it neither grows nor lapses meanwhile, whatever the predictions were worth."""
    flow = dispatcher()
    for number in range(20):
        flow.enqueue(request(f"b{number}", rank=2, cost=8.0), 0.0)
    for number in range(600):
        flow.enqueue(request(f"c{number}", rank=0, cost=8.0), 0.0)
    for number in range(100):  # 0.05 of 800 are five bulk requests
        assert flow.next(0.0, (1, 1, int(number < 1))) == Dispatch(f"c{number}")
    for number in range(1, 100):
        flow.settle(f"c{number}", actual, 1.0)
    leaving = [flow.next(1.0, ALL_FREE) for _ in range(40)]
    bulk = [index for index, left in enumerate(leaving) if left == Dispatch("b0")]
    assert bulk == [19]
    assert Dispatch("b1") in leaving
    assert Dispatch("b2") not in leaving


def test_settling_is_idempotent_and_corrects_the_charge() -> None:
    flow = dispatcher()
    for tenant in "ab":
        for number in range(30):
            flow.enqueue(request(f"{tenant}{number}", tenant=tenant, cost=8.0), 0.0)
    assert flow.next(0.0, ALL_FREE) == Dispatch("a0")
    assert flow.settle("a0", 80.0, 1.0)
    assert not flow.settle("a0", 80.0, 1.0)
    assert not flow.settle("b0", 8.0, 1.0), "it waits, it was not sent"
    assert not flow.settle("unknown", 8.0, 1.0)
    leaving = [flow.next(1.0, ALL_FREE) for _ in range(10)]
    assert leaving == [Dispatch(f"b{number}") for number in range(10)]


@pytest.mark.parametrize(("cost", "rate"), [(None, None), (100.0, 100.0)])
def test_what_nobody_knows_stays_charged_and_teaches_nothing(
    cost: float | None, rate: float | None
) -> None:
    """Clients left after a moment: predictions are no measure of how fast a node works."""
    flow = dispatcher()
    for number in range(20):
        flow.enqueue(request(f"r{number}", cost=100.0), 0.0)
    for number in range(10):
        assert flow.next(float(number), ALL_FREE) == Dispatch(f"r{number}")
        assert flow.settle(f"r{number}", cost, number + 1.0)
        assert not flow.settle(f"r{number}", cost, number + 1.0)
    assert flow.drain_rate == (None if rate is None else pytest.approx(rate))


def test_a_prediction_that_was_too_dear_earns_no_claim() -> None:
    queue = dispatcher()
    for index in range(5):
        queue.enqueue(request(f"b{index}", 2, cost=520.0), 0.0)
    for index in range(2):
        assert queue.next(0.0, [9, 9, 9]) == Dispatch(f"b{index}")
    for index in range(2):
        queue.settle(f"b{index}", 40.0, 1.0)
    queue.enqueue(request("c", 0), 1.0)
    assert queue.next(1.0, [9, 9, 9]) == Dispatch("c")


def test_several_places_at_once_are_shared_before_anything_ends() -> None:
    flow = dispatcher()
    for tenant in "ab":
        for number in range(4):
            flow.enqueue(request(f"{tenant}{number}", tenant=tenant), 0.0)
    leaving = [flow.next(0.0, (4, 4, 4)) for _ in range(4)]
    assert leaving == [Dispatch(name) for name in ("a0", "b0", "a1", "b1")]


def test_an_id_is_in_use_until_it_is_settled() -> None:
    flow = dispatcher()
    flow.enqueue(request("r"), 0.0)
    with pytest.raises(ValueError, match="here already"):
        flow.enqueue(request("r"), 0.0)
    assert flow.next(0.0, ALL_FREE) == Dispatch("r")
    with pytest.raises(ValueError, match="here already"):
        flow.enqueue(request("r"), 0.0)
    assert not flow.remove("r")
    flow.settle("r", 0.0, 0.0)
    assert isinstance(flow.enqueue(request("r"), 0.0), Admit)
    assert flow.remove("r")
    assert not flow.remove("r")


def test_one_that_would_not_be_served_in_time_is_shed_at_once() -> None:
    flow = dispatcher(Tiers())
    for number in range(40):
        flow.enqueue(request(f"r{number}", rank=0, cost=10.0), 0.0)
    assert flow.predicted_wait(request("new", rank=0), 0.0) is None
    for number in range(10):
        assert flow.next(number * 0.5, ALL_FREE) == Dispatch(f"r{number}")
        flow.settle(f"r{number}", 10.0, number * 0.5)
    rate = flow.drain_rate
    assert rate == pytest.approx(20.0, rel=0.2)
    late = request("late", rank=0, cost=10.0, arrival=4.5)
    wait = flow.predicted_wait(late, 4.5)
    assert wait is not None
    assert rate is not None
    # The backlog, and one request more until a place is free.
    assert wait.p50_s == pytest.approx(310.0 / rate, rel=0.5)
    assert wait.p90_s > wait.p50_s > 5.0
    shed = Shed(Outcome.REJECTED_SATURATED, wait.p90_s, ShedReason.DOOMED)
    assert flow.enqueue(late, 4.5) == shed
    other = request("other", rank=0, tenant="b", arrival=4.5)
    assert isinstance(flow.enqueue(other, 4.5), Admit), "its own share is not taken"


def test_evicted_requests_have_left() -> None:
    flow = dispatcher(bounded(PATIENT, max_queued=3))
    for number in range(3):
        flow.enqueue(request(f"a{number}", tenant="a"), 0.0)
    decision = flow.enqueue(request("b", tenant="b"), 0.0)
    assert isinstance(decision, Admit)
    assert decision.evicted == ("a2",)
    assert not flow.remove("a2")
    assert flow.queue_depth(1) == len(flow) == 3


def test_fcfs_serves_by_arrival_alone_and_has_no_tier_limits() -> None:
    flow = dispatcher(Tiers(), "fcfs")
    ranks = [2, 0, 1, 0, 2, 1]
    for number, rank in enumerate(ranks):
        flow.enqueue(request(f"r{number}", rank, tenant=f"t{number}", weight=number + 1.0), 0.0)
    assert [flow.queue_depth(rank) for rank in range(3)] == [2, 2, 2]
    assert flow.expired(10_000.0) == []
    leaving = [flow.next(10_000.0, ALL_FREE) for _ in ranks]
    assert leaving == [Dispatch(f"r{number}") for number in range(6)]
    assert [flow.queue_depth(rank) for rank in range(3)] == [0, 0, 0]


MOVES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 20).map(float), st.integers(0, 2)),
    min_size=20,
    max_size=120,
)


def dispatches(
    tiers: Tiers, moves: list[tuple[int, float, int]]
) -> list[tuple[QueuedRequest, tuple[bool, ...]]]:
    """Queue one request per move, then let as many leave as the move says.

    Returns each that left, with the tiers that still had a backlog.
    """
    flow = dispatcher(tiers)
    entries = {}
    left = []
    for number, (rank, cost, leaving) in enumerate(moves):
        # Twice the arrivals of what can leave, so that there is a backlog.
        for suffix in "xy":
            entry = request(f"{number}{suffix}", rank, cost=cost)
            entries[entry.request_id] = entry
            flow.enqueue(entry, 0.0)
        for _ in range(leaving):
            decision = flow.next(0.0, ALL_FREE)
            assert isinstance(decision, Dispatch), "G6: a request and a credit, yet nothing left"
            entry = entries[decision.request_id]
            flow.settle(decision.request_id, entry.cost, 0.0)
            left.append((entry, tuple(flow.queue_depth(rank) > 0 for rank in range(3))))
            if len(flow) == 0:
                break
    return left


def worst_shortfall(tiers: Tiers, moves: list[tuple[int, float, int]], rank: int) -> float:
    """Return the most that a window of backlog of `rank` fell short of the default floor."""
    worst, window = 0.0, []
    for entry, backlogged in dispatches(tiers, moves):
        if backlogged[rank]:
            window.append((entry.cost, entry.cost if entry.rank == rank else 0.0))
        else:
            window = []
        worst = max(worst, shortfall(FLOORS[rank], window))
    return worst


@given(MOVES)
def test_g1_every_window_of_backlog_holds_the_floor(moves: list[tuple[int, float, int]]) -> None:
    """G1, gateway: shortfall <= largest cost * (1 + floor tiers * largest floor)."""
    largest = max(cost for _, cost, _ in moves)
    for rank in (1, 2):
        assert worst_shortfall(PATIENT, moves, rank) <= largest * (1 + 2 * max(FLOORS)) + 1e-9


def test_g1_a_floor_is_a_share_of_actual_cost_not_of_predictions() -> None:
    """Bulk is predicted at ten times its cost, and still receives its 5 %."""
    flow = dispatcher()
    for number in range(2000):
        flow.enqueue(request(f"c{number}", rank=0, cost=10.0), 0.0)
    for number in range(300):
        flow.enqueue(request(f"b{number}", rank=2, cost=100.0), 0.0)
    served = {"b": 0.0, "c": 0.0}
    for _ in range(2000):
        decision = flow.next(0.0, ALL_FREE)
        assert isinstance(decision, Dispatch)
        flow.settle(decision.request_id, 10.0, 0.0)
        served[decision.request_id[0]] += 10.0
    assert 0.045 <= served["b"] / sum(served.values()) <= 0.06


def test_g1_control_without_floors_the_bound_breaks() -> None:
    moves = [(1, 20.0, 0), *[(0, 20.0, 2)] * 40]
    assert worst_shortfall(NO_FLOORS, moves, 1) > 20.0 * (1 + 2 * max(FLOORS))
    assert worst_shortfall(PATIENT, moves, 1) <= 20.0 * (1 + 2 * max(FLOORS))


@given(MOVES)
def test_g2_floors_cost_critical_their_share_and_no_more(
    moves: list[tuple[int, float, int]],
) -> None:
    """G2, gateway: while critical waits, others get at most the floors' share, plus a constant."""
    largest = max(cost for _, cost, _ in moves)
    bound = 2 * largest * (1 + 2 * max(FLOORS))
    excess, lowest = 0.0, 0.0
    for entry, backlogged in dispatches(PATIENT, moves):
        if not backlogged[0]:
            excess, lowest = 0.0, 0.0
            continue
        excess += (0.0 if entry.rank == 0 else entry.cost) - sum(FLOORS) * entry.cost
        lowest = min(lowest, excess)
        assert excess - lowest <= bound + 1e-9


@given(MOVES)
def test_g2_without_floors_critical_with_a_credit_always_leaves_next(
    moves: list[tuple[int, float, int]],
) -> None:
    for entry, backlogged in dispatches(NO_FLOORS, moves):
        assert entry.rank == 0 or not backlogged[0]


@given(
    st.lists(st.integers(1, 20), min_size=40, max_size=120),
    st.integers(1, 6),
    st.lists(st.integers(0, 5), min_size=40, max_size=120),
    st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1.0, 3.0])),
    st.floats(0.1, 3.0),
)
def test_g3_service_follows_weight_with_requests_outstanding_and_wrong_predictions(
    costs: list[int],
    slots: int,
    ends: list[int],
    weights: tuple[float, float],
    error: float,
) -> None:
    """G3, gateway: |W_f/w_f - W_g/w_g| <= 2 * (2 D + 1) * c, in every window of both's backlog.

    D requests are outstanding; c is the largest cost, predicted or actual, by weight. Tenant f is
    predicted wrong by the factor `error`; W counts actual cost at the end of a request.
    """
    flow = dispatcher()
    actual = {}
    for number, cost in enumerate(costs):
        for tenant, weight in zip("fg", weights, strict=True):
            name = f"{tenant}{number}"
            actual[name] = float(cost)
            predicted = cost * error if tenant == "f" else float(cost)
            flow.enqueue(request(name, tenant=tenant, cost=predicted, weight=weight), 0.0)
    waiting = {"f": len(costs), "g": len(costs)}
    outstanding: list[str] = []
    difference = lowest = highest = 0.0
    for end in ends:
        while len(outstanding) < slots and min(waiting.values()) > 0:
            decision = flow.next(0.0, ALL_FREE)
            assert isinstance(decision, Dispatch)
            outstanding.append(decision.request_id)
            waiting[decision.request_id[0]] -= 1
        if min(waiting.values()) == 0:
            break
        name = outstanding.pop(end % len(outstanding))
        flow.settle(name, actual[name], 0.0)
        share = actual[name] / weights["fg".index(name[0])]
        difference += share if name[0] == "f" else -share
        lowest, highest = min(lowest, difference), max(highest, difference)
    largest = max(costs) * max(1.0, error) / min(weights)
    assert highest - lowest <= 2 * (2 * slots + 1) * largest + 1e-9
