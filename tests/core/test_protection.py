"""How much may those keep whom nobody preempts, and what is left to the most urgent tier?"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.step import Resident, StepLimits, Wait
from tests.core.situation import PLAIN, decode, plan, tokens, waits

RESERVE = StepLimits(
    max_num_seqs=32,
    max_num_batched_tokens=64,
    tiers=(replace(PLAIN[0], reserved_blocks=10), *PLAIN[1:]),
)
"""With 100 blocks a tenth of them is kept for critical."""


def safe(max_num_tokens: int) -> Resident:
    """A protected bulk request that decodes; it holds two blocks."""
    return Resident("safe", 2, 0, 33, 32, max_num_tokens, 0, protected=True)


def test_the_protected_keep_room_to_finish() -> None:
    """G4: others neither take what a protected one holds nor what it may still need."""
    running = [safe(96), decode("c", 0, 9, tokens=32), decode("d", 0, 8, tokens=70)]
    step = plan(running, [], num_blocks=12)
    assert step.waits == {"c": Wait.BLOCKS}
    assert tokens(step) == {"safe": 1, "d": 1}
    assert plan(running, [waits("e", 0, 10, 70)], num_blocks=12).preempted == ()


@pytest.mark.parametrize("rank", [0, 1])
def test_g2_a_large_protected_one_gives_way_to_the_most_urgent_alone(rank: int) -> None:
    """It may need more than half of the blocks."""
    running = [safe(112), decode("c", rank, 9, tokens=32), decode("d", 0, 8, tokens=70)]
    grows = plan(running, [], num_blocks=12)
    assert set(tokens(grows)) == ({"c", "d", "safe"} if rank == 0 else {"d", "safe"})
    step = plan([safe(112)], [waits("e", rank, 10, 150)], num_blocks=12)
    assert step.preempted == (("safe",) if rank == 0 else ())
    assert set(tokens(step)) == ({"e"} if rank == 0 else {"safe"})


@pytest.mark.parametrize(("held", "enters"), [(460, True), (480, False)])
def test_a_large_protected_one_waits_until_critical_needs_little(held: int, enters: bool) -> None:
    """Beside what it holds, and a reserve. Protected ones that are not large pass it meanwhile."""
    large, small = (
        waits("large", 2, 1, 940, protected=True),
        waits("small", 2, 2, 4, protected=True),
    )
    step = plan([decode("c", 0, 9, tokens=held)], [large, small], num_blocks=100, limits=RESERVE)
    assert step.waits.get("large") is (None if enters else Wait.HELD)
    assert ("small" in tokens(step)) is not enters


@given(st.integers(1, 100), st.integers(0, 90), st.integers(1, 10))
def test_g2_no_single_request_of_a_lower_tier_keeps_critical_out(
    size: int, urgent: int, needed: int
) -> None:
    """Whatever it may hold: as a resident, or while it is overdue, protected or not.

    Critical holds `urgent` blocks, and one that needs at most a reserve arrives.
    """
    before = [decode("c", 0, 9, tokens=16 * urgent - 1)] if urgent else []
    arrival = waits("new", 0, 99, 16 * needed)
    for protected in (False, True):
        giant = Resident("giant", 2, 0, 16 * size, 16 * size - 1, 16 * size, 0, protected)
        if urgent + needed <= 50 or (urgent + needed <= 100 and size > 50):
            fits = [*before, giant] if urgent + size <= 100 else before
            step = plan(fits, [arrival], num_blocks=100, limits=RESERVE)
            assert "new" in tokens(step)
            # One that is overdue goes first, and is a resident in the next step.
            overdue = waits("giant", 2, 1, 16 * size, overtaken=8, protected=protected)
            step = plan(before, [overdue, arrival], num_blocks=100, limits=RESERVE, owed=(2,))
            assert not {"new", "giant"}.isdisjoint(tokens(step))


@pytest.mark.parametrize(
    ("size", "urgent", "passes"), [(95, 7, True), (80, 7, False), (60, 45, True)]
)
def test_b7_who_cannot_fit_beside_critical_holds_nobody_up(
    size: int, urgent: int, passes: bool
) -> None:
    """Beside its reserve, or what it holds: it runs in what critical leaves, others meanwhile."""
    giant = waits("giant", 2, 1, 16 * size, overtaken=8)
    busy = [decode("c", 0, 9, tokens=16 * urgent - 1), decode("b", 2, 0, tokens=300)]
    step = plan(busy, [giant, waits("small", 2, 2, 10)], num_blocks=100, limits=RESERVE, owed=(2,))
    assert ("small" in tokens(step)) is passes


@pytest.mark.parametrize(("size", "runs"), [(60, True), (50, False)])
def test_only_who_is_not_large_is_left_blocks_by_critical(size: int, runs: bool) -> None:
    """While it is overdue, and others hold what it needs."""
    giant, new = waits("giant", 2, 1, 16 * size, overtaken=8), waits("new", 0, 10, 16 * 8)
    busy = [decode("c", 0, 9, tokens=16 * (93 - size) - 1), decode("b", 2, 0, tokens=300)]
    busy.append(decode("o", 2, 8, tokens=16 * 8))
    step = plan(busy, [giant, new], num_blocks=100, limits=RESERVE, owed=(2,))
    assert ("new" in tokens(step)) is runs
    assert step.waits["giant"] is Wait.BLOCKS


def test_the_protected_share_a_quarter_and_hold_nobody_else_up() -> None:
    """A quarter of eight slots, or of so many blocks; the first one comes in whatever it takes."""
    limits = StepLimits(max_num_seqs=8, max_num_batched_tokens=64, tiers=PLAIN)
    protected = [waits(f"p{i}", 2, i, 4, protected=True) for i in range(100)]
    others = [waits(f"b{i}", 2, 50 + i, 4) for i in range(2)]
    step = plan([], [*protected, *others], limits=limits)
    assert list(tokens(step)) == ["p0", "p1", "b0", "b1"]
    assert {step.waits[f"p{i}"] for i in range(2, 100)} == {Wait.HELD}
    assert step.overtaken == {}
    for num_blocks, admitted in ((16, 2), (15, 1), (2, 1)):
        step = plan([], protected, num_blocks=num_blocks, limits=limits)
        assert len(tokens(step)) == admitted


@pytest.mark.parametrize("rank", [1, 2])
def test_b7_no_small_one_that_is_protected_passes_a_large_one(rank: int) -> None:
    """Else one that takes more than a quarter would never be the first, as one always is there."""
    safe = Resident("safe", 2, 0, 33, 32, 160, 0, protected=True)
    large = waits("large", 1, 1, 400, protected=True)
    small = waits("small", rank, 2, 4, protected=True)
    other = waits("other", rank, 3, 4)
    step = plan([safe], [large, small, other], num_blocks=100)
    assert set(tokens(step)) == {"safe", "other"}
    assert step.waits == {"large": Wait.HELD, "small": Wait.HELD}
    assert "large" in tokens(plan([], [large, small, other], num_blocks=100))
