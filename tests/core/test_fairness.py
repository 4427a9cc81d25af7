"""Do tenants share a tier by weight, counted in work, and does nobody bank an idle hour?"""

from collections import Counter
from functools import partial
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.fairness import FairQueue
from headway.core.service import MAX_IDLE_TENANTS, MAX_WEIGHT, MIN_WEIGHT
from tests.core.scenario import pop

COSTS = st.integers(1, 100).map(float)
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0])


def fill(queue: FairQueue, tenant: str, count: int, cost: float = 8.0, weight: float = 1.0) -> None:
    """Queue `count` requests of a tenant."""
    for number in range(count):
        queue.push(f"{tenant}{number}", tenant, weight=weight, cost=cost, key=0.0)


def serve(queue: FairQueue, count: int, cost: float = 8.0, weight: float = 1.0) -> list[str]:
    """Pop and charge `count` requests whose ids begin with their tenant's letter."""
    order = []
    for request_id in iter(partial(pop, queue), None):
        queue.charge(request_id[0], cost, weight)
        order.append(request_id)
        if len(order) == count:
            break
    return order


def test_tenants_take_turns_and_ties_go_by_arrival() -> None:
    queue = FairQueue()
    fill(queue, "b", 3)
    fill(queue, "a", 3)
    assert serve(queue, 6) == ["b0", "a0", "b1", "a1", "b2", "a2"]


def test_inside_a_tenant_the_key_decides_then_arrival() -> None:
    queue = FairQueue()
    for number, key in enumerate([2.0, 1.0, 2.0, 0.0]):
        queue.push(f"a{number}", "a", cost=1.0, key=key)
    assert serve(queue, 4) == ["a3", "a1", "a0", "a2"]


def test_g3_weights_of_one_to_four_are_followed() -> None:
    queue = FairQueue()
    weights = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    for tenant, weight in weights.items():
        fill(queue, tenant, 500, weight=weight)
    served: Counter[str] = Counter()
    for _ in range(1000):
        request_id = pop(queue)
        assert request_id is not None
        queue.charge(request_id[0], 8.0, weights[request_id[0]])
        served[request_id[0]] += 1
    assert all(abs(served[tenant] - 100 * weight) <= 1 for tenant, weight in weights.items())


def test_g3_the_heaviest_share_alike_after_a_year_of_the_lightest_alone() -> None:
    queue = FairQueue()
    queue.push("year", "light", weight=MIN_WEIGHT, cost=1e3, key=0.0)
    assert queue.send() == "year"
    queue.release("year", 1e11, MIN_WEIGHT)
    for tenant in "ab":
        fill(queue, tenant, 200, cost=1000.0, weight=MAX_WEIGHT)
    for _ in range(100):
        pair = {name[0] for name in serve(queue, 2, 1000.0, MAX_WEIGHT)}
        assert pair == {"a", "b"}


@given(
    st.lists(COSTS, min_size=2, max_size=120),
    st.lists(COSTS, min_size=2, max_size=120),
    st.tuples(WEIGHTS, WEIGHTS),
)
def test_g3_service_of_backlogged_tenants_stays_within_one_request_each(
    costs_f: list[float], costs_g: list[float], weights: tuple[float, float]
) -> None:
    """G3: in every window, |W_f/w_f - W_g/w_g| <= c_f/w_f + c_g/w_g (c: the largest cost)."""
    queue = FairQueue()
    costs: dict[str, float] = {}
    for tenant, own, weight in (("f", costs_f, weights[0]), ("g", costs_g, weights[1])):
        for number, cost in enumerate(own):
            costs[f"{tenant}{number}"] = cost
            queue.push(f"{tenant}{number}", tenant, weight=weight, cost=cost, key=float(number))
    bound = max(costs_f) / weights[0] + max(costs_g) / weights[1]
    left = {"f": len(costs_f), "g": len(costs_g)}
    difference, lowest, highest = 0.0, 0.0, 0.0
    while min(left.values()) > 0:
        request_id = pop(queue)
        assert request_id is not None
        tenant, weight = request_id[0], weights["fg".index(request_id[0])]
        queue.charge(tenant, costs[request_id], weight)
        left[tenant] -= 1
        share = costs[request_id] / weight
        difference += share if tenant == "f" else -share
        lowest, highest = min(lowest, difference), max(highest, difference)
    # The widest window runs from one extreme of the running difference to the other.
    assert highest - lowest <= bound + 1e-9


def test_g3_control_without_charges_one_tenant_takes_all() -> None:
    queue = FairQueue()
    fill(queue, "a", 50)
    fill(queue, "b", 50)
    assert [pop(queue) for _ in range(50)] == [f"a{number}" for number in range(50)]


def test_a_returning_tenant_is_lifted_to_those_who_were_served() -> None:
    queue = FairQueue()
    fill(queue, "a", 200)
    serve(queue, 100)
    fill(queue, "b", 50)
    order = serve(queue, 20)
    assert 9 <= sum(request_id[0] == "b" for request_id in order) <= 11


def test_a_long_request_under_way_does_not_keep_old_credit() -> None:
    queue = FairQueue()
    queue.reserve("long", "b", 8.0)
    fill(queue, "a", 200)
    serve(queue, 100)
    fill(queue, "b", 50)
    order = serve(queue, 20)
    assert 9 <= sum(request_id[0] == "b" for request_id in order) <= 11


def test_a_lull_levels_everybody_who_has_nothing_waiting() -> None:
    queue = FairQueue()
    queue.charge("a", 1000.0)
    fill(queue, "b", 10)
    fill(queue, "a", 10)
    assert [request_id[0] for request_id in serve(queue, 6)] == list("bababa")


def test_a_prediction_refunded_later_leaves_no_newcomer_behind() -> None:
    """A tenant alone predicts 10 000 a request and uses 100; a newcomer still gets its half."""
    queue = FairQueue()
    fill(queue, "a", 200, cost=10_000.0)
    for _ in range(100):
        under_way = pop(queue)
        assert under_way is not None
        queue.reserve(under_way, "a", 10_000.0)
        assert queue.release(under_way)
        queue.charge("a", 100.0)
    fill(queue, "b", 50, cost=100.0)
    order = serve(queue, 20, cost=100.0)
    assert 9 <= sum(request_id[0] == "b" for request_id in order) <= 11


def test_what_is_drawn_from_a_reservation_leaves_the_order_as_it_is() -> None:
    """Service that was predicted is charged when predicted; only what goes beyond comes on top."""
    queue = FairQueue()
    for tenant in "ab":
        queue.push(f"{tenant}0", tenant, cost=1.0, key=0.0)
    queue.reserve("x", "a", 10.0)
    queue.charge("b", 15.0)
    queue.draw("x", "a", 10.0)
    assert queue.peek() == "a0"
    queue.draw("x", "a", 6.0)
    assert queue.peek() == "b0"
    assert queue.release("x")
    assert queue.peek() == "b0", "nothing of the reservation was left to give back"
    queue.check_integrity()


def test_what_is_under_way_counts_until_it_is_released() -> None:
    queue = FairQueue()
    fill(queue, "a", 3)
    fill(queue, "b", 3)
    assert pop(queue) == "a0"
    queue.reserve("a0", "a", 100.0)
    assert [pop(queue), pop(queue)] == ["b0", "b1"]
    assert queue.release("a0")
    assert not queue.release("a0")
    assert queue.peek() == "a1"


def test_v_never_moves_back_and_refunds_are_honoured() -> None:
    queue = FairQueue()
    fill(queue, "a", 5)
    fill(queue, "b", 5)
    serve(queue, 4)
    before = queue.service.virtual_time
    queue.charge("a", -16.0)
    assert queue.service.virtual_time >= before
    assert [request_id[0] for request_id in serve(queue, 3)] == ["a", "a", "a"]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), COSTS, WEIGHTS, st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.tuples(st.sampled_from("abc"), COSTS), max_size=5),
)
def test_looking_ahead_shows_what_popping_and_charging_would_do(
    requests: list[tuple[str, float, float, int]], charges: list[tuple[str, float]]
) -> None:
    queue = FairQueue()
    entries = {}
    for number, (tenant, cost, weight, key) in enumerate(requests):
        entries[str(number)] = (tenant, cost, weight)
        queue.push(str(number), tenant, weight=weight, cost=cost, key=float(key))
    for tenant, cost in charges:
        queue.charge(tenant, cost)
    ahead = list(queue.in_order())
    popped = []
    for request_id in iter(partial(pop, queue), None):
        queue.charge(*entries[request_id])
        popped.append(request_id)
    assert popped == ahead


def _reserve(
    queue: FairQueue,
    under_way: list[str],
    operation: str,
    name: str,
    service: tuple[str, float, float],
) -> None:
    """Reserve, or draw from the newest reservation, or give up the oldest."""
    if operation == "reserve":
        queue.reserve(name, *service)
        under_way.append(name)
    elif operation == "draw" and under_way:
        queue.draw(under_way[-1], *service)
    elif operation == "release" and under_way:
        assert queue.release(under_way.pop(0))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "pop", "remove", "charge", "reserve", "draw", "release"]),
            st.sampled_from("abcd"),
            COSTS,
            WEIGHTS,
        ),
        max_size=80,
    )
)
def test_g9_afterwards_nothing_is_left(operations: list[tuple[str, str, float, float]]) -> None:
    """G9, queue side: whatever happened, an emptied queue holds no request and no cost."""
    queue = FairQueue()
    under_way: list[str] = []
    for number, (operation, tenant, cost, weight) in enumerate(operations):
        if operation in ("reserve", "draw", "release"):
            _reserve(queue, under_way, operation, str(number), (tenant, cost, weight))
        elif operation == "push":
            queue.push(str(number), tenant, weight=weight, cost=cost, key=cost)
        elif operation == "pop":
            pop(queue)
        elif operation == "remove" and len(queue):
            assert queue.remove(list(queue.in_order())[-1])
        elif operation == "charge":
            queue.charge(tenant, cost, weight)
        queue.check_integrity()
    for request_id in list(queue.in_order()):
        assert queue.remove(request_id)
        assert request_id not in queue
    for request_id in under_way:
        assert queue.release(request_id)
    assert len(queue) == 0
    assert pop(queue) is None
    queue.push("last", "z", cost=1.0, key=0.0)
    assert len(queue.service) == 1, "after a lull only who waits is remembered"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "send", "settle", "remove"]), st.sampled_from("abc"), COSTS
        ),
        max_size=80,
    )
)
def test_i10_virtual_time_never_moves_back_and_no_reservation_is_lost(
    operations: list[tuple[str, str, float]],
) -> None:
    queue = FairQueue()
    sent: list[str] = []
    fill(queue, "z", 1, cost=0.0)
    before = queue.service.virtual_time
    for number, (operation, tenant, cost) in enumerate(operations):
        if operation == "push":
            queue.push(f"{tenant}{number}", tenant, cost=cost, key=0.0)
        elif operation == "send" and (name := queue.send()) is not None:
            sent.append(name)
        elif operation == "settle" and sent:
            name = sent.pop(0)
            queue.release(name, cost)
        elif operation == "remove":
            queue.remove(f"{tenant}{number - 1}")
        assert queue.service.virtual_time >= before >= 0
        before = queue.service.virtual_time
        queue.check_integrity()


def test_i10_what_is_reserved_is_replaced_by_what_was_given() -> None:
    """Whatever was predicted, three tenants that received the same take turns."""
    queue = FairQueue()
    for tenant, predicted in (("a", 1.0), ("b", 64.0), ("c", 8.0)):
        fill(queue, tenant, 40, cost=predicted)
    for _ in range(60):
        name = queue.send()
        assert name is not None
        queue.release(name, 8.0)
    order = [str(queue.send()) for _ in range(3)]
    assert sorted(name[0] for name in order) == ["a", "b", "c"]


def test_tenants_that_come_once_do_not_fill_the_memory() -> None:
    queue = FairQueue()
    fill(queue, "z", 3)
    for number in range(2 * MAX_IDLE_TENANTS):
        queue.push(f"r{number}", f"t{number}", cost=1.0, key=0.0)
        queue.remove(f"r{number}")
        queue.charge(f"t{number}", 1.0)
    assert len(queue.service) <= MAX_IDLE_TENANTS + 2


def test_of_too_many_idle_tenants_the_least_in_debt_are_forgotten() -> None:
    """Otherwise whoever was served most comes back as a newcomer."""
    queue = FairQueue()
    fill(queue, "z", 1)
    queue.charge("heavy", 100.0)
    for number in range(2 * MAX_IDLE_TENANTS):
        queue.charge(f"t{number}", 1.0)
    queue.charge("light", 2.0)
    for tenant in ("heavy", "light"):
        queue.push(tenant, tenant, cost=1.0, key=0.0)
    assert list(queue.in_order()) == ["z0", "light", "heavy"]


def test_the_oldest_debts_are_forgotten_once_the_virtual_time_has_passed_them() -> None:
    queue = FairQueue()
    fill(queue, "z", 100)
    for number in range(50):
        queue.charge(f"t{number}", 8.0 * (1 + number % 5))
    assert len(queue.service) == 51
    serve(queue, 20)
    assert len(queue.service) == 1


def test_a_look_ahead_of_a_few_is_lazy() -> None:
    queue = FairQueue()
    fill(queue, "a", 3)
    fill(queue, "b", 3)
    assert list(islice(queue.in_order(), 2)) == ["a0", "b0"]
    assert queue.peek() == "a0"


def test_wrong_use_is_refused() -> None:
    queue = FairQueue()
    queue.push("r", "a", cost=1.0, key=0.0)
    with pytest.raises(ValueError, match="waits already"):
        queue.push("r", "b", cost=1.0, key=0.0)
    with pytest.raises(ValueError, match="weight must be above 0"):
        queue.push("s", "a", weight=0.0, cost=1.0, key=0.0)
    with pytest.raises(ValueError, match="cost at least 0"):
        queue.push("s", "a", cost=float("nan"), key=0.0)
    with pytest.raises(ValueError, match="weight must be above 0"):
        queue.charge("a", 1.0, weight=-1.0)
    with pytest.raises(ValueError, match="weight must be above 0"):
        queue.reserve("s", "a", 1.0, weight=0.0)
    queue.reserve("s", "a", 1.0)
    with pytest.raises(ValueError, match="has a reservation"):
        queue.reserve("s", "a", 1.0)
    assert not queue.remove("unknown")
    queue.check_integrity()


def test_a_reservation_that_is_refused_leaves_no_account_behind() -> None:
    queue = FairQueue()
    queue.reserve("r", "a", 1.0)
    with pytest.raises(ValueError, match="weight must be above 0"):
        queue.reserve("s", "unknown", 1.0, weight=0.0)
    with pytest.raises(ValueError, match="has a reservation"):
        queue.reserve("r", "unknown", 1.0)
    assert len(queue.service) == 1
    queue.check_integrity()
