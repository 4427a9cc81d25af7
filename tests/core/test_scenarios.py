"""Do the queues behave over time where others are known to fail?

Each test is a case of public bug reports (`field-faults.md`, A and C) on a manual clock. Where a
policy makes the difference, a control run without it shows that the scenario can tell.
"""

import pytest

from headway.core.dispatch import Policy
from headway.core.tier import Tiers
from tests.core.scenario import NO_FLOORS, PATIENT, Arrival, bounded, play, request

SPEED = 100.0
"""Cost units per second of one slot: ten requests of cost 10."""


def arrivals(
    prefix: str,
    count: int,
    *,
    rank: int = 1,
    tenant: str = "a",
    cost: float = 10.0,
    weight: float = 1.0,
    start: float = 0.0,
    every: float = 0.0,
) -> list[Arrival]:
    """Return `count` requests, one each `every` seconds."""
    return [
        Arrival(
            request(
                f"{prefix}{number}",
                rank,
                tenant,
                cost=cost,
                weight=weight,
                arrival=start + number * every,
            )
        )
        for number in range(count)
    ]


def test_a1_critical_takes_the_very_next_slot_and_normal_the_one_after() -> None:
    load = [
        *arrivals("bulk", 20, rank=2),
        *arrivals("normal", 1, rank=1, start=0.15),
        *arrivals("critical", 1, rank=0, start=0.17),
    ]
    order = play(load, slots=2, speed=SPEED).order()
    waiting_at_arrival = order[4:]
    assert waiting_at_arrival[:2] == ["critical0", "normal0"]


def test_a4_the_dead_leave_on_time_and_the_living_go_next() -> None:
    busy = Arrival(request("busy", cost=10 * SPEED))
    limited = [
        Arrival(request(f"limited{n}", arrival=0.01, deadline=1.01, cost=10)) for n in range(50)
    ]
    leaving = [
        Arrival(request(f"left{n}", arrival=0.02, cost=10), cancel_at=0.52) for n in range(50)
    ]
    live = Arrival(request("live", arrival=0.03, cost=10))
    run = play([busy, *limited, *leaving, live], speed=SPEED)
    assert run.order() == ["busy", "live"]
    assert set(run.times("expire").values()) == {1.01}
    assert set(run.times("cancel").values()) == {0.52}
    assert len(run.times("expire")) == len(run.times("cancel")) == 50
    assert run.times("dispatch")["live"] == run.times("finish")["busy"] == 10.0


def flood_with_five_bulk(tiers: Tiers) -> dict[str, float]:
    load = [
        *arrivals("critical", 12 * 120, rank=0, every=1 / 12),
        *arrivals("bulk", 5, rank=2, start=0.0),
    ]
    started = play(load, tiers=tiers, speed=SPEED, until=120).times("dispatch")
    assert sum(request_id.startswith("critical") for request_id in started) >= 0.94 * 10 * 120
    return {request_id: at for request_id, at in started.items() if request_id.startswith("bulk")}


def test_a5_1_bulk_starts_within_its_floor_under_a_critical_flood() -> None:
    """G1 as a wait: the n-th request waits for at most (n * cost + bound) / (floor * rate)."""
    started = flood_with_five_bulk(PATIENT)
    bound = 10.0 + 2 * 0.15 * 10.0
    for number in range(5):
        assert started[f"bulk{number}"] <= ((number + 1) * 10.0 + bound) / (0.05 * SPEED)


def test_a5_1_control_without_floors_bulk_starves() -> None:
    assert flood_with_five_bulk(NO_FLOORS) == {}


def waits_beside_a_flood(policy: Policy) -> list[float]:
    load = [
        *arrivals("a", 1000, tenant="a"),
        *arrivals("b", 60, tenant="b", start=1.05, every=1.0),
    ]
    started = play(load, policy=policy, speed=SPEED).times("dispatch")
    return [started[f"b{number}"] - (1.05 + number) for number in range(60)]


def test_a5_2_a_small_tenant_waits_one_service_time_beside_a_flood() -> None:
    assert max(waits_beside_a_flood("qos")) <= 0.1 + 1e-9


def test_a5_2_control_first_come_first_served_makes_it_wait_behind_the_flood() -> None:
    waits = waits_beside_a_flood("fcfs")
    assert min(waits[:30]) > 40.0


@pytest.mark.parametrize(
    ("weight_a", "weight_b", "policy", "fair"),
    [
        (1.0, 1.0, "qos", True),
        (1.0, 3.0, "qos", True),
        (2.0, 1.0, "qos", True),
        (1, 1, "fcfs", False),
    ],
)
def test_a5_3_service_is_split_by_weight_not_by_count(
    weight_a: float, weight_b: float, policy: Policy, fair: bool
) -> None:
    load = [
        *arrivals("a", 60, tenant="a", cost=1000.0, weight=weight_a),
        *arrivals("b", 3000, tenant="b", cost=20.0, weight=weight_b),
    ]
    order = play(load, policy=policy, slots=2, speed=1000.0, until=24.0).order()
    served_a = 1000.0 * sum(request_id.startswith("a") for request_id in order)
    served_b = 20.0 * sum(request_id.startswith("b") for request_id in order)
    share_a = (served_a / weight_a) / (served_a / weight_a + served_b / weight_b)
    assert (0.45 <= share_a <= 0.55) == fair, share_a


@pytest.mark.parametrize("bound", ["requests", "tokens"])
def test_a5_4_a_full_queue_takes_from_the_tenant_that_filled_it(bound: str) -> None:
    tiers = bounded(
        PATIENT,
        max_queued=100 if bound == "requests" else 10**6,
        max_queued_tokens=10**9 if bound == "requests" else 1000,
    )
    load = [
        Arrival(request("busy", tenant="z", cost=1000)),
        *arrivals("a", 100, tenant="a", start=0.1),
        *arrivals("more", 1, tenant="a", start=0.2),
        *arrivals("b", 1, tenant="b", start=0.3),
    ]
    run = play(load, tiers=tiers, speed=SPEED, until=0.5)
    assert run.order("shed") == ["more0"]
    assert run.order("evict") == ["a99"]
    assert "b0" in run.times("admit")


def test_a5_5_an_hour_of_idling_earns_no_credit() -> None:
    load = [
        *arrivals("b", 1, tenant="b"),
        *arrivals("a", 40_000, tenant="a", start=0.0, every=0.1),
        *arrivals("burst", 200, tenant="b", start=3600.0),
    ]
    order = play(load, slots=1, speed=SPEED, until=3620.0).order()
    first = order.index("burst0")
    during = order[first : first + 100]
    assert 49 <= sum(request_id.startswith("a") for request_id in during) <= 51


def test_a10_one_that_exceeds_the_bound_waits_alone_or_is_refused_and_blocks_nobody() -> None:
    tiers = bounded(PATIENT, max_queued=10, max_queued_tokens=100)
    load = [
        Arrival(request("busy", cost=100)),
        Arrival(request("giant", cost=500, arrival=0.1)),
        Arrival(request("behind", cost=10, arrival=0.2)),
        Arrival(request("small", cost=10, arrival=2.0)),
        Arrival(request("giant2", cost=500, arrival=2.5)),
        Arrival(request("small2", cost=10, arrival=2.6)),
    ]
    run = play(load, tiers=tiers, speed=SPEED)
    assert run.order("shed") == ["behind", "giant2"]
    assert run.order() == ["busy", "giant", "small", "small2"]


def test_c9_fifty_in_one_clock_tick_leave_in_order_of_arrival() -> None:
    load = [Arrival(request(f"r{number}", cost=8)) for number in range(50)]
    assert play(load).order() == [f"r{number}" for number in range(50)]
