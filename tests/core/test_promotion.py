"""Does work with a deadline meet it more often by its tenant's own share, at nobody's expense?"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.admission import ShedReason
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch, WaitUntil
from headway.core.dispatch import Dispatcher
from headway.core.promotion import MARGIN, SOONEST, Plan, Promotions, target_rank
from headway.core.tier import DEFAULT_TIERS, Tiers
from tests.core.scenario import PATIENT, Arrival, Run, play, request

SPEED = 100.0
NO_CREDIT, ALL_FREE = (0, 0, 0), (1, 1, 1)
BULK_ONLY = 2


def dated(name: str, deadline: float, *, highest_rank: int = 0, **fields: float) -> QueuedRequest:
    """Return a bulk request of tenant d with a deadline."""
    cost, arrival = fields.get("cost", 10.0), fields.get("arrival", 0.0)
    entry = request(name, 2, "d", cost=cost, arrival=arrival, deadline=deadline)
    return replace(entry, highest_rank=highest_rank)


@pytest.mark.parametrize(
    ("rank", "deadline", "highest_rank", "expected"),
    [
        (2, 10.0, 0, 1),
        (2, 10.0, 1, 1),
        (2, 10.0, 2, None),  # its key may not use the tier above
        (2, None, 0, None),
        (1, 10.0, 0, None),  # nothing becomes critical
        (0, 10.0, 0, None),
        (3, 10.0, 1, 2),
    ],
)
def test_who_may_move_up(
    rank: int, deadline: float | None, highest_rank: int, expected: int | None
) -> None:
    entry = replace(request("r", rank, deadline=deadline), highest_rank=highest_rank)
    assert target_rank(entry) == expected


def test_looks_are_spaced_so_that_there_are_few() -> None:
    promotions = Promotions()
    promotions.watch(dated("r", 100.0), 50.0, 1000.0, 0.0)
    assert promotions.next_look() == 0.0
    now, looks = 0.0, 0
    while look := next(promotions.due(now), None):
        request_id, plan = look
        assert plan == Plan(100.0, MARGIN * 100.0, 50.0, 1000.0)
        looks += 1
        promotions.put_off(request_id, 10.0 + 1e-9, now)
        at = promotions.next_look()
        assert at is not None
        assert at >= now + SOONEST * MARGIN * 100.0 - 1e-9
        now = at
        if now >= 100.0:
            break
    assert looks <= 1 / (MARGIN * SOONEST) + 1
    promotions.put_off("r", 60.0, 0.0)
    assert promotions.next_look() == 50.0, "the earliest time at which laxity can be the margin"
    promotions.forget("r")
    promotions.forget("r")
    assert promotions.next_look() is None


def test_what_was_served_meanwhile_is_no_longer_ahead() -> None:
    plan = Plan(100.0, 10.0, ahead=50.0, served=1000.0)
    assert [plan.cost_left(served) for served in (1000.0, 1030.0, 2000.0)] == [50.0, 20.0, 0.0]


def test_it_moves_up_at_the_time_that_was_foretold_and_takes_the_upper_credit() -> None:
    flow = Dispatcher(PATIENT, Prices())
    flow.enqueue(dated("r", 100.0), 0.0)
    assert flow.next(0.0, NO_CREDIT) == WaitUntil(90.0)
    assert (flow.queue_depth(1), flow.queue_depth(2)) == (0, 1)
    assert flow.next(89.9, (1, 1, 0)) == WaitUntil(90.0)
    assert flow.next(90.0, NO_CREDIT) == WaitUntil(100.0)
    assert (flow.queue_depth(1), flow.queue_depth(2)) == (1, 0)
    assert flow.next(90.0, (1, 0, 1)) == WaitUntil(100.0)
    assert flow.next(90.0, ALL_FREE) == Dispatch("r", promoted_to=1)
    assert flow.settle("r", 10.0, 91.0)
    flow.check_integrity()


def test_it_arrives_in_the_tier_above_when_it_moves_up_behind_its_own_tenants_requests() -> None:
    flow = Dispatcher(PATIENT, Prices())
    flow.enqueue(dated("r", 100.0), 0.0)
    flow.enqueue(request("early", 1, "d", arrival=80.0), 80.0)
    assert flow.next(90.0, NO_CREDIT) == WaitUntil(100.0)
    flow.enqueue(request("late", 1, "d", arrival=95.0), 95.0)
    order = [flow.next(95.0, ALL_FREE) for _ in range(3)]
    assert order == [Dispatch("early"), Dispatch("r", promoted_to=1), Dispatch("late")]
    for name in ("early", "r", "late"):
        assert flow.settle(name, 10.0, 96.0)
    flow.check_integrity()


def test_promoted_work_expires_at_its_own_deadline_not_at_the_limit_of_the_tier_above() -> None:
    flow = Dispatcher(Tiers(), Prices())
    flow.enqueue(dated("r", 1000.0), 0.0)
    assert flow.next(900.0, NO_CREDIT) == WaitUntil(1000.0)
    assert flow.queue_depth(1) == 1
    assert flow.expired(999.0) == []
    assert flow.expired(1000.0) == ["r"]
    flow.check_integrity()


def small_normal() -> Tiers:
    """Return the default tiers with room for two normal requests."""
    tiers = {1: replace(DEFAULT_TIERS[1], max_queued=2, queue_timeout_s=None)}
    return Tiers(tuple(tiers.get(tier.rank, tier) for tier in DEFAULT_TIERS))


def test_nobody_gives_way_to_promoted_work_and_it_gives_way_by_going_back() -> None:
    flow = Dispatcher(small_normal(), Prices())
    for name in ("d0", "d1", "d2"):
        flow.enqueue(dated(name, 100.0), 0.0)
    assert flow.next(95.0, NO_CREDIT) == WaitUntil(95.0 + SOONEST * 10.0)
    assert (flow.queue_depth(1), flow.queue_depth(2)) == (2, 1)
    decision = flow.enqueue(request("n", 1, "other", arrival=95.0), 95.0)
    assert getattr(decision, "evicted", None) == ()
    assert (flow.queue_depth(1), flow.queue_depth(2)) == (2, 2)
    flow.check_integrity()
    assert sorted(flow.expired(100.0)) == ["d0", "d1", "d2"]


@pytest.mark.parametrize("tenant", ["d", "other"])
def test_promoted_work_goes_back_for_whoever_the_tier_is_for(tenant: str) -> None:
    """For its own tenant's normal requests, too, though none of those would give way to another."""
    flow = Dispatcher(small_normal(), Prices())
    for name in ("d0", "d1", "d2"):
        flow.enqueue(dated(name, 100.0), 0.0)
    flow.next(95.0, NO_CREDIT)
    assert (flow.queue_depth(1), flow.queue_depth(2)) == (2, 1)
    for number in range(2):
        decision = flow.enqueue(request(f"n{number}", 1, tenant, arrival=95.0), 95.0)
        assert getattr(decision, "evicted", None) == ()
        assert (flow.queue_depth(1), flow.queue_depth(2)) == (2, 2 + number)
        flow.check_integrity()
    refused = flow.enqueue(request("n2", 1, tenant, arrival=95.0), 95.0)
    assert getattr(refused, "reason", None) is ShedReason.FULL
    assert sorted(flow.expired(100.0)) == ["d0", "d1", "d2"]


def test_promoted_work_stays_where_its_going_back_would_not_suffice() -> None:
    tiers = {1: replace(DEFAULT_TIERS[1], max_queued_tokens=100, queue_timeout_s=None)}
    flow = Dispatcher(Tiers(tuple(tiers.get(t.rank, t) for t in DEFAULT_TIERS)), Prices())
    flow.enqueue(request("n", 1, "other", tokens=60), 0.0)
    flow.enqueue(replace(dated("d", 100.0), tokens=40), 0.0)
    flow.next(95.0, NO_CREDIT)
    assert flow.queue_depth(1) == 2
    refused = flow.enqueue(request("large", 1, "d", tokens=50, arrival=95.0), 95.0)
    assert getattr(refused, "reason", None) is ShedReason.FULL
    assert flow.queue_depth(1) == 2
    fits = flow.enqueue(request("small", 1, "d", tokens=40, arrival=95.0), 95.0)
    assert getattr(fits, "evicted", None) == ()
    assert (flow.queue_depth(1), flow.queue_depth(2)) == (2, 1)


def load(highest_rank: int, deadline_s: float = 60.0) -> list[Arrival]:
    """Bulk of d with deadlines beside a flood of bulk and two tenants of normal work.

    Normal asks for 60 % of the capacity, so bulk as a whole falls behind.
    """
    flood = [Arrival(request(f"flood{n}", 2, "z", cost=10.0)) for n in range(1500)]
    dates = [
        Arrival(dated(f"d{n}", n * 2.0 + deadline_s, highest_rank=highest_rank, arrival=n * 2.0))
        for n in range(60)
    ]
    normal = [
        Arrival(request(f"{tenant}{n}", 1, tenant, cost=10.0, arrival=n / 3))
        for tenant in "xy"
        for n in range(360)
    ]
    return [*flood, *dates, *normal]


def hits(run: Run, deadline_s: float = 60.0) -> float:
    finished = run.times("finish")
    kept = [n for n in range(60) if finished.get(f"d{n}", 1e9) <= n * 2.0 + deadline_s]
    return len(kept) / 60


def longest_wait(run: Run, tenant: str) -> float:
    """Return the longest wait of a tenant's normal requests."""
    started = run.times("dispatch")
    return max(started[f"{tenant}{n}"] - n / 3 for n in range(360))


def test_more_deadlines_are_met_and_the_others_normal_work_keeps_its_share() -> None:
    # Bulk is shared by weight, so d would do well without: give the flood forty tenants' weight.
    def weighted(arrivals: list[Arrival]) -> list[Arrival]:
        return [
            replace(a, request=replace(a.request, weight=40.0)) if a.request.tenant == "z" else a
            for a in arrivals
        ]

    without = play(weighted(load(BULK_ONLY)), tiers=PATIENT, speed=SPEED, until=250.0)
    with_it = play(weighted(load(0)), tiers=PATIENT, speed=SPEED, until=250.0)
    assert hits(without) < 0.5
    assert hits(with_it) > 0.9
    for tenant in "xy":
        assert longest_wait(with_it, tenant) <= longest_wait(without, tenant) + 2 * 0.1


def test_g3_a_flood_of_promoted_work_takes_its_tenants_share_of_the_tier_and_no_more() -> None:
    flow = Dispatcher(PATIENT, Prices())
    for number in range(300):
        flow.enqueue(dated(f"d{number}", 10.0), 0.0)
        flow.enqueue(request(f"x{number}", 1, "x", cost=10.0), 0.0)
        flow.enqueue(request(f"y{number}", 1, "y", cost=10.0, weight=2.0), 0.0)
    served = {"d": 0, "x": 0, "y": 0}
    for number in range(400):
        decision = flow.next(9.5, ALL_FREE)
        assert isinstance(decision, Dispatch)
        flow.settle(decision.request_id, 10.0, 9.5)
        served[decision.request_id[0]] += 1
        if number >= 8:
            assert served["x"] >= served["d"] - 2
            assert served["y"] >= 2 * served["d"] - 4
    assert served["d"] >= 95


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 32), st.integers(0, 64)
        ),
        max_size=40,
    )
)
def test_metamorphic_without_deadlines_or_with_far_ones_nothing_changes(
    shapes: list[tuple[int, str, int, int]],
) -> None:
    def arrivals(deadline: float | None, highest_rank: int) -> list[Arrival]:
        return [
            Arrival(
                replace(
                    request(f"r{n}", rank, tenant, cost=float(cost), arrival=at / 4),
                    deadline=deadline,
                    highest_rank=highest_rank,
                )
            )
            for n, (rank, tenant, cost, at) in enumerate(shapes)
        ]

    logs = [
        play(arrivals(deadline, highest), slots=2, speed=8.0).log
        for deadline, highest in ((None, 0), (None, BULK_ONLY), (1e9, 0))
    ]
    assert logs[0] == logs[1] == logs[2]
