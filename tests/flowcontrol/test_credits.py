"""How much may be in flight at one node, for each tier."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.tier import Tier, Tiers
from headway.flowcontrol.credits import floor_slots, free_credits, known_slots, tier_ceilings

TIERS = Tiers()
NOTHING_KEPT = (0, 0, 0)
LIMITS = st.integers(1, 500)


def test_the_less_of_configured_and_reported_is_meant() -> None:
    assert known_slots(5, 64) == 5
    assert known_slots(64, 5) == 5
    assert known_slots(None, 64) == 64
    assert known_slots(None, 0) == 1
    assert known_slots(None, None) is None


@pytest.mark.parametrize(
    ("limit", "preempts", "ceilings"),
    [
        (32, False, (32, 29, 27)),
        (32, True, (36, 29, 27)),
        (8, False, (8, 7, 7)),
        (2, False, (2, 2, 2)),
        (1, True, (2, 1, 1)),
    ],
)
def test_lower_tiers_leave_the_reserves_free(
    limit: int, preempts: bool, ceilings: tuple[int, ...]
) -> None:
    assert tier_ceilings(limit, TIERS, preempts=preempts, policy="qos") == ceilings


def test_first_come_first_served_has_no_reserves() -> None:
    assert tier_ceilings(32, TIERS, preempts=True, policy="fcfs") == (32, 32, 32)


@given(LIMITS, st.booleans(), st.sampled_from(["qos", "fcfs"]), st.data())
def test_sending_what_is_free_breaks_no_ceiling(
    limit: int, preempts: bool, policy: str, data: st.DataObject
) -> None:
    ceilings = tier_ceilings(limit, TIERS, preempts=preempts, policy=policy)
    kept = floor_slots(limit, TIERS, preempts=preempts, policy=policy)
    overcommit = ceilings[0] - limit
    inflight = [0, 0, 0]
    for _ in range(data.draw(st.integers(0, 40))):
        rank = data.draw(st.integers(0, 2))
        free = free_credits(limit, ceilings, inflight, kept)
        assert min(free) >= 0
        # A more urgent tier may always do what a less urgent one may, but for the floor of that.
        for urgent, other in ((0, 1), (1, 2), (0, 2)):
            assert free[urgent] >= free[other] or free[other] == kept[other] - inflight[other]
        if free[rank] == 0:
            continue
        inflight[rank] += data.draw(st.integers(1, free[rank]))
        assert sum(inflight) <= max(ceilings[0], limit) + sum(kept)
        assert sum(inflight[1:]) <= ceilings[1] + overcommit + sum(kept)
        assert inflight[2] <= max(ceilings[2], kept[2])
        assert inflight[0] <= limit


@given(LIMITS)
def test_every_tier_may_use_an_idle_node(limit: int) -> None:
    ceilings = tier_ceilings(limit, TIERS, preempts=False, policy="qos")
    free = free_credits(limit, ceilings, [0, 0, 0], NOTHING_KEPT)
    assert min(free) >= 1
    assert free[0] == limit


def test_what_critical_uses_counts_as_its_reserve() -> None:
    ceilings = tier_ceilings(32, TIERS, preempts=False, policy="qos")
    assert free_credits(32, ceilings, [0, 0, 27], NOTHING_KEPT) == [5, 2, 0]
    assert free_credits(32, ceilings, [3, 2, 27], NOTHING_KEPT) == [0, 0, 0]
    assert free_credits(32, ceilings, [3, 0, 20], NOTHING_KEPT) == [9, 9, 7]


def test_a_tier_overcommits_only_beyond_what_the_floors_below_keep() -> None:
    ceilings = tier_ceilings(32, TIERS, preempts=True, policy="qos")
    kept = floor_slots(32, TIERS, preempts=True, policy="qos")
    assert kept == (0, 10, 4)
    for lower, free in ((0, 0), (14, 0), (15, 1), (18, 4), (27, 4)):
        inflight = [32 - lower, 0, lower]
        assert free_credits(32, ceilings, inflight, kept)[0] == free


def test_normal_work_comes_to_a_node_full_of_bulk() -> None:
    ceilings = tier_ceilings(32, TIERS, preempts=True, policy="qos")
    kept = floor_slots(32, TIERS, preempts=True, policy="qos")
    assert free_credits(32, ceilings, [0, 0, 27], kept) == [9, 10, 0]
    assert free_credits(32, ceilings, [0, 10, 27], kept) == [0, 0, 0]


def test_a_floor_always_has_its_place_at_a_node_that_plans_by_tier() -> None:
    ceilings = tier_ceilings(32, TIERS, preempts=True, policy="qos")
    kept = floor_slots(32, TIERS, preempts=True, policy="qos")
    assert free_credits(32, ceilings, [32, 0, 0], kept) == [0, 10, 4]
    assert free_credits(32, ceilings, [32, 10, 3], kept) == [0, 0, 1]
    assert floor_slots(32, TIERS, preempts=False, policy="qos") == NOTHING_KEPT
    assert floor_slots(32, TIERS, preempts=True, policy="fcfs") == NOTHING_KEPT


def test_a_node_of_one_slot_has_none_to_keep() -> None:
    assert floor_slots(1, TIERS, preempts=True, policy="qos") == NOTHING_KEPT
    assert floor_slots(2, TIERS, preempts=True, policy="qos") == (0, 1, 0)


@given(st.integers(1, 500), st.lists(st.integers(0, 100), min_size=2, max_size=4))
def test_what_floors_keep_leaves_a_slot_to_the_most_urgent(limit: int, shares: list[int]) -> None:
    """However full the less urgent have made the node: at the latest once each of those has ended.

    Meanwhile they send on whatever they may, but critical goes first.
    """
    tiers = tiers_with([share / (sum(shares) + 1) for share in shares])
    ceilings = tier_ceilings(limit, tiers, preempts=True, policy="qos")
    kept = floor_slots(limit, tiers, preempts=True, policy="qos")
    assert sum(kept) <= limit - 1
    inflight = [0] * len(tiers)

    def send_lower() -> list[int]:
        sent: list[int] = []
        for rank in range(len(tiers) - 1, 0, -1):
            free = free_credits(limit, ceilings, inflight, kept)[rank]
            inflight[rank] += free
            sent += [rank] * free
        return sent

    for rank in send_lower():
        if free_credits(limit, ceilings, inflight, kept)[0] > 0:
            break
        inflight[rank] -= 1
        if free_credits(limit, ceilings, inflight, kept)[0] > 0:
            break
        send_lower()
    assert free_credits(limit, ceilings, inflight, kept)[0] > 0


@pytest.mark.parametrize(
    ("limit", "floors", "kept"),
    [
        (32, [0, 0.3, 0.1], (0, 20, 7)),
        (32, [0, 0.3, 0.25], (0, 17, 14)),
        (32, [0, 0.5, 0.45], (0, 16, 15)),
        (32, [0.2, 0.4, 0.2], (8, 15, 8)),
        (2, [0, 0.1, 0.05, 0.05], (0, 1, 0, 0)),
        (4, [0, 0.6, 0.05], (0, 2, 1)),
        (4, [0, 0.3, 0.3, 0.3], (0, 1, 1, 1)),
    ],
)
def test_large_floors_share_all_slots_but_one(
    limit: int, floors: list[float], kept: tuple[int, ...]
) -> None:
    assert floor_slots(limit, tiers_with(floors), preempts=True, policy="qos") == kept


def tiers_with(floors: Sequence[float]) -> Tiers:
    """Return tiers with these floors and the reserves of the default ones."""
    reserves = [tier.reserve for tier in TIERS.all] + [0.0]
    both = enumerate(zip(floors, reserves, strict=False))
    return Tiers(tuple(Tier(f"t{rank}", rank, floor=f, reserve=r) for rank, (f, r) in both))
