"""Does an overloaded tier turn whole tenants away, no more than needed, and not always the same?"""

from dataclasses import replace

import pytest

from headway.core.admission import Admit, Shed, ShedReason
from headway.core.cost import Prices
from headway.core.decision import Dispatch
from headway.core.dispatch import Dispatcher
from headway.core.shedding import EPOCH_S, MIN_LEVEL, Level
from headway.core.tier import DEFAULT_TIERS, Tiers
from tests.core.scenario import request

TENANTS = [f"t{number}" for number in range(400)]


def level_after(waits_s: list[float]) -> Level:
    """Return the level after one dispatch each half second, with these waits."""
    level = Level(target_s=2.0)
    for number, wait_s in enumerate(waits_s):
        level.waited(wait_s, number * 0.5)
    return level


def test_nobody_is_turned_away_while_waits_keep_to_the_target() -> None:
    level = level_after([1.9] * 100)
    assert level.value == 1.0
    assert not any(level.turns_away(tenant, 50.0) for tenant in TENANTS)


def test_it_falls_fast_and_rises_slowly_and_never_shuts_all_out() -> None:
    level = level_after([2.1] * 41)
    assert 0.95**21 <= level.value <= 0.95**19
    share = sum(level.turns_away(tenant, 20.0) for tenant in TENANTS) / len(TENANTS)
    assert abs(share - (1 - level.value)) < 0.1
    fallen = level_after([2.1] * 1000)
    assert fallen.value == MIN_LEVEL
    for number in range(20):
        fallen.waited(0.1, 500.0 + number)
    assert MIN_LEVEL + 0.18 <= fallen.value <= MIN_LEVEL + 0.22


def test_a_lull_counts_as_recovery() -> None:
    level = level_after([2.1] * 41)
    before = level.value
    level.lull(20.0 + 0.1)
    level.lull(60.0)
    assert before + 0.35 <= level.value <= before + 0.45


def test_a_lull_counts_after_the_interval_in_which_the_last_waits_ended() -> None:
    level = level_after([2.1] * 41)
    before = level.value
    level.waited(2.1, 20.0 + 0.5)
    level.lull(20.0 + 0.9)
    assert level.value == before
    level.lull(20.0 + 1.0 + 40.0)
    assert level.value == pytest.approx(0.95 * before + 0.4)


def test_whole_tenants_are_turned_away_and_others_in_the_next_hour() -> None:
    level = level_after([2.1] * 41)

    def turned_away(now: float) -> set[str]:
        return {tenant for tenant in TENANTS if level.turns_away(tenant, now)}

    first, again, later = turned_away(30.0), turned_away(EPOCH_S - 1), turned_away(EPOCH_S + 1)
    assert first == again
    assert first != later
    assert first & later != later


def overloaded(tenants: list[str], rank: int = 1) -> Dispatcher:
    """Return a dispatcher in which a tier's requests, five of each tenant, have long waited."""
    patient = tuple(replace(tier, queue_timeout_s=1e5) for tier in DEFAULT_TIERS)
    flow = Dispatcher(Tiers(patient), Prices())
    for number in range(200):
        for tenant in tenants:
            flow.enqueue(request(f"{tenant}-{number}", rank, tenant, cost=1.0), 0.0)
    for number in range(195 * len(tenants)):
        decision = flow.next(10.0 + number, (1, 1, 1))
        assert isinstance(decision, Dispatch)
        flow.settle(decision.request_id, 1.0, 10.0 + number)
    return flow


def decisions(flow: Dispatcher, tenants: list[str], rank: int = 1) -> dict[str, Admit | Shed]:
    now = 10.0 + 195 * len(tenants)
    return {t: flow.enqueue(request(f"{t}-new", rank, t, arrival=now), now) for t in tenants}


def test_only_who_holds_a_share_among_several_is_turned_away() -> None:
    tenants = ["a", "b", "c", "d", "e", "f"]
    flow = overloaded(tenants)
    seen = decisions(flow, tenants)
    sheds = [one for one in seen.values() if isinstance(one, Shed)]
    assert sheds
    assert all(one.reason is ShedReason.LEVEL for one in sheds)
    now = 10.0 + 195 * len(tenants)
    assert isinstance(flow.enqueue(request("newcomer", 1, "z", arrival=now), now), Admit)


def test_one_tenant_alone_critical_and_bulk_are_never_turned_away_by_level() -> None:
    assert isinstance(decisions(overloaded(["a"]), ["a"])["a"], Admit)
    for rank in (0, 2):
        tenants = ["a", "b", "c", "d", "e", "f"]
        seen = decisions(overloaded(tenants, rank), tenants, rank)
        assert all(isinstance(one, Admit) for one in seen.values())
