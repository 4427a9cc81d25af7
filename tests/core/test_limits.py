"""How much may be in flight at one node (I14; bound B8 for the limiter)."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.limits import (
    FIRST_LIMIT,
    FLOOR,
    IN_USE,
    MOST_SLOTS,
    SLOWEST_PACE,
    NodeLimiter,
)
from headway.core.window import WindowSignals, window_is_over
from tests.core.node_model import NodeModel, best_limit, linear, turns

SHARES = st.none() | st.floats(0, 1)
SECONDS = st.none() | st.floats(0, 10)
GRADUAL = linear(0.02, 0.0003)
STEEP = linear(0.005, 0.00045)


def knee(running: float) -> float:
    """Up to 100 more in flight is free; beyond, each waits for the others."""
    return 0.02 * max(1.0, running / 100)


@st.composite
def windows(draw: st.DrawFn) -> WindowSignals:
    return WindowSignals(
        duration_s=draw(st.floats(0.5, 20)),
        completions=draw(st.integers(0, 300)),
        tokens=draw(st.integers(0, 10_000)),
        max_inflight=draw(st.integers(0, 300)),
        itl_s=draw(SECONDS),
        itl_target_s=draw(st.sampled_from([None, 0.05, 0.1])),
        queue_wait_p95_s=draw(SECONDS),
        kv_used=draw(SHARES),
        num_preemptions=draw(st.none() | st.integers(0, 5)),
        failed=draw(st.booleans()),
    )


@given(st.none() | st.integers(1, 300), st.booleans(), st.lists(windows(), min_size=1, max_size=80))
def test_i14_the_limit_stays_within_bounds_and_moves_gently(
    slots: int | None, keeps_latency: bool, seen: list[WindowSignals]
) -> None:
    limiter = NodeLimiter(slots, keeps_latency=keeps_latency)
    ceiling = MOST_SLOTS if slots is None else slots
    for window in seen:
        before = limiter.limit
        after = limiter.observe(window)
        assert min(FLOOR, ceiling) <= after <= ceiling
        assert after >= before / 2
        assert after - before <= max(1, 0.02 * before)
        if after > before:
            assert window.max_inflight >= IN_USE * before
            assert not window.failed


@given(st.integers(1, 500), st.integers(1, 500), st.lists(windows(), max_size=10))
def test_i14_a_ceiling_that_moves_is_kept(
    first: int, second: int, seen: list[WindowSignals]
) -> None:
    limiter = NodeLimiter(first)
    for window in seen:
        limiter.observe(window)
    at_ceiling = limiter.limit == first
    limiter.set_slots(second, keeps_latency=False)
    assert limiter.limit <= second
    if at_ceiling:
        assert limiter.limit == second


def test_it_starts_from_what_the_node_says_or_from_a_careful_guess() -> None:
    limiter = NodeLimiter()
    assert limiter.limit == FIRST_LIMIT
    limiter.set_slots(64, keeps_latency=True)
    assert limiter.limit == 64
    assert NodeLimiter(3).limit == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [0.1, 10])
def test_from_far_off_it_comes_near_the_best_static_limit_and_stays(
    factor: float, seed: int
) -> None:
    best = best_limit(GRADUAL)
    limits = NodeModel(itl=GRADUAL, seed=seed).run(started_at(round(best * factor)), 600)
    settled = limits[300:]
    assert abs(fmean(settled) - best) <= 0.1 * best
    assert all(abs(limit - best) <= 0.2 * best for limit in settled)
    assert turns(settled) <= 0.1 * len(settled)


@pytest.mark.parametrize("seed", range(3))
def test_it_rests_at_the_target_however_much_single_windows_differ(seed: int) -> None:
    best = best_limit(GRADUAL)
    settled = NodeModel(itl=GRADUAL, noise=0.1, seed=seed).run(started_at(best), 1000)[200:]
    low, *_, high = quantiles(settled, n=20, method="inclusive")
    assert abs(fmean(settled) - best) <= 0.1 * best
    assert max(high - fmean(settled), fmean(settled) - low) <= 0.1 * fmean(settled)


def test_one_slow_window_among_others_lowers_nothing_but_the_only_one_or_two_in_a_row_do() -> None:
    limiter = started_at(100)

    def observe(itl_s: float) -> int:
        return limiter.observe(replace(full(limiter), itl_s=itl_s, itl_target_s=0.05))

    assert [observe(itl_s) for itl_s in (0.1, 0.1)] == [70, 49]
    assert [observe(itl_s) for itl_s in (0.04, 0.1, 0.04, 0.1)] == [49] * 4
    assert observe(0.1) == 34


@pytest.mark.parametrize("calm", [0.8, 0.9])
def test_two_slow_windows_that_are_not_in_a_row_lower_nothing(calm: float) -> None:
    limiter = NodeLimiter(64)

    def observe(closeness: float) -> int:
        return limiter.observe(
            replace(full(limiter), itl_s=0.05 * closeness, itl_target_s=0.05, max_inflight=64)
        )

    for _ in range(100):
        observe(calm)
    assert {observe(closeness) for closeness in (3.0, calm, 3.0, *(10 * [calm]))} == {64}


@pytest.mark.parametrize("num_inflight", [20, 64])
@pytest.mark.parametrize("calm", [0.3, 0.7, 0.9, 0.95])
@pytest.mark.parametrize("overload", [(1.2,), (1.3,), (1.4, 1.6)])
def test_a_sudden_overload_after_a_long_calm_is_noticed_within_eight_windows(
    overload: tuple[float, ...], calm: float, num_inflight: int
) -> None:
    limiter = NodeLimiter(64)

    def observe(closeness: float, num_inflight: int) -> int:
        window = replace(full(limiter), itl_s=0.05 * closeness, itl_target_s=0.05)
        return limiter.observe(replace(window, max_inflight=num_inflight))

    assert {observe(calm, num_inflight) for _ in range(100)} == {64}
    saturated = [observe(overload[n % len(overload)], 64) for n in range(8)]
    assert min(saturated) < 64


def test_a_node_that_is_too_slow_although_its_limit_is_not_used_is_noticed_too() -> None:
    limiter = NodeLimiter(64)
    slow = replace(full(limiter), itl_s=0.065, itl_target_s=0.05, max_inflight=40)
    assert min(limiter.observe(slow) for _ in range(10)) < 64


def test_a_first_window_in_which_the_node_compiled_excuses_nothing_later() -> None:
    limiter = NodeLimiter(64)
    idle = replace(full(limiter), itl_target_s=0.05, max_inflight=1)
    for itl_s in (2.0, *(10 * [0.02])):
        limiter.observe(replace(idle, itl_s=itl_s))
    slow = replace(full(limiter), itl_s=0.12, itl_target_s=0.05)
    assert [limiter.observe(slow) for _ in range(2)][-1] < 64, "plain twice in a row"


@pytest.mark.parametrize("factor", [0.1, 10])
def test_throughput_comes_near_that_of_the_best_static_limit(factor: float) -> None:
    """Where more in flight brings hardly more, less of it is as good."""
    for itl in (GRADUAL, STEEP, knee):
        best = best_limit(itl)
        settled = NodeModel(itl=itl).run(started_at(round(best * factor)), 900)[500:]
        assert fmean(limit / itl(limit) for limit in settled) >= 0.9 * best / itl(best)


def started_at(limit: int) -> NodeLimiter:
    """Return a limiter with that limit which may grow beyond."""
    limiter = NodeLimiter(limit)
    limiter.ceiling = MOST_SLOTS
    return limiter


@pytest.mark.parametrize("start", [10, 1000])
def test_the_nodes_own_slots_are_found_from_the_wait_inside(start: int) -> None:
    """Nobody there has a target: only what waits inside tells."""
    model = NodeModel(itl=linear(0.03, 0.0), slots=100, target_s=None)
    settled = model.run(started_at(start), 600)[300:]
    assert all(90 <= limit <= 110 for limit in settled)
    assert turns(settled) <= 0.2 * len(settled)


@pytest.mark.parametrize("start", [10, 1000])
def test_growth_ends_where_more_in_flight_brings_no_more_throughput(start: int) -> None:
    """Nobody there has a target."""
    model = NodeModel(itl=knee, target_s=None)
    settled = model.run(started_at(start), 1500)[500:]
    assert 85 <= fmean(settled) <= 125
    assert max(settled) <= 160


def test_b8_it_follows_a_node_that_becomes_slower_and_faster() -> None:
    model = NodeModel(itl=GRADUAL)
    limiter = started_at(90)
    model.run(limiter, 50)
    slower, best = linear(0.03, 0.0006), best_limit(linear(0.03, 0.0006))
    model.itl = slower
    fell = model.run(limiter, 40)
    assert abs(fell[-1] - best) <= 0.2 * best
    model.itl, best = GRADUAL, best_limit(GRADUAL)
    rose = model.run(limiter, 300)
    assert rose[-1] >= 0.9 * best


def test_a_failure_halves_and_growth_waits() -> None:
    limiter = NodeLimiter(64, keeps_latency=True)
    assert limiter.observe(WindowSignals(duration_s=1.0, max_inflight=64, failed=True)) == 32
    busy = [limiter.observe(full(limiter)) for _ in range(5)]
    assert busy == [32, 32, 32, 33, 34]
    for _ in range(10):
        limiter.observe(WindowSignals(duration_s=1.0, max_inflight=64, failed=True))
    assert limiter.limit == FLOOR


def full(limiter: NodeLimiter) -> WindowSignals:
    """Return a window in which everything went well and all of the limit was used."""
    return WindowSignals(duration_s=1.0, completions=20, tokens=500, max_inflight=limiter.limit)


def test_memory_that_runs_out_stops_growth_and_preemptions_lower_the_limit() -> None:
    limiter = NodeLimiter(64, keeps_latency=True)
    limiter.observe(WindowSignals(duration_s=1.0, max_inflight=64, failed=True))
    for _ in range(20):
        limiter.observe(replace(full(limiter), kv_used=0.87))
    assert limiter.limit == 32
    pressed = WindowSignals(duration_s=1.0, max_inflight=32, kv_used=0.95, num_preemptions=2)
    assert limiter.observe(pressed) == 30
    relaxed = WindowSignals(duration_s=1.0, max_inflight=30, kv_used=0.6, num_preemptions=2)
    assert limiter.observe(relaxed) == 30


def test_a_node_that_keeps_latency_itself_is_not_held_to_gaps_or_its_own_queue() -> None:
    """The embedded engine under a flood: gaps and waits far above every target."""
    ours, stock = NodeLimiter(32, keeps_latency=True), NodeLimiter(32)
    for _ in range(100):
        for limiter in (ours, stock):
            slow = replace(full(limiter), itl_s=0.4, itl_target_s=0.05, queue_wait_p95_s=9.0)
            limiter.observe(slow)
    assert ours.limit == 32
    assert stock.limit == FLOOR


def test_without_any_signal_the_limit_neither_grows_nor_falls() -> None:
    limiter = NodeLimiter()
    model = NodeModel(itl=linear(0.02, 0.0), target_s=None, tells=False)
    assert set(model.run(limiter, 200)) == {FIRST_LIMIT}


def test_a_node_without_metrics_is_judged_by_its_gaps_alone() -> None:
    best = best_limit(GRADUAL)
    settled = NodeModel(itl=GRADUAL, tells=False).run(NodeLimiter(), 600)[300:]
    assert abs(fmean(settled) - best) <= 0.1 * best


def test_metrics_that_go_missing_freeze_growth() -> None:
    limiter = NodeLimiter()
    model = NodeModel(itl=GRADUAL, noise=0.0)
    model.run(limiter, 20)
    grown, model.tells = limiter.limit, False
    assert set(model.run(limiter, 50)) == {grown}
    model.tells = True
    assert model.run(limiter, 50)[-1] > grown


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    limiter = NodeLimiter()
    model = NodeModel(itl=GRADUAL)
    for _ in range(50):
        limiter.observe(model.window(limiter.limit, demand=6))
    assert limiter.limit == FIRST_LIMIT


def test_a_slow_node_is_held_to_what_it_does_when_nearly_idle() -> None:
    """Its gaps are above the target even alone; it may take twice that, and no more."""
    itl = linear(0.1, 0.004)
    model, limiter = NodeModel(itl=itl), NodeLimiter()
    settled = model.run(limiter, 400)[200:]
    assert 0.8 <= itl(fmean(settled)) / (2 * itl(2)) <= 1.0
    assert min(settled) > FLOOR


def test_after_too_much_it_probes_rarely() -> None:
    model, limiter = NodeModel(itl=GRADUAL, noise=0.0), started_at(120)
    limits = model.run(limiter, 200)[20:]
    rises = [i for i, (a, b) in enumerate(pairwise(limits)) if b > a]
    assert rises
    assert all(b - a >= 0.8 * SLOWEST_PACE for a, b in pairwise(rises))


def too_slow(limiter: NodeLimiter, max_inflight: int) -> WindowSignals:
    """Return a window with gaps of twice the target."""
    return replace(full(limiter), itl_s=0.1, itl_target_s=0.05, max_inflight=max_inflight)


@pytest.mark.parametrize(("max_inflight", "limit"), [(60, 70), (100, 70), (120, 84)])
def test_it_falls_by_what_was_too_much_the_limit_or_what_was_still_in_flight(
    max_inflight: int, limit: int
) -> None:
    """A limit that what is in flight has not come down to yet was not too much."""
    limiter = started_at(100)
    assert limiter.observe(too_slow(limiter, max_inflight)) == limit
    assert limiter.observe(too_slow(limiter, 100)) == min(limit, 70)


def test_near_what_was_too_much_it_goes_slowly_and_beyond_it_no_more() -> None:
    limiter, limits = started_at(100), []
    limiter.observe(too_slow(limiter, 100))
    for _ in range(215):
        roomy = replace(full(limiter), itl_s=0.02, itl_target_s=0.05, tokens=10 * limiter.limit)
        limits.append(limiter.observe(roomy))
    stayed = Counter(limits)
    assert {stayed[limit] for limit in range(71, 95)} == {1}
    assert {stayed[limit] for limit in range(95, 101)} == {SLOWEST_PACE}
    assert {stayed[limit] for limit in limits if limit > 100} == {1}


def test_how_it_went_with_too_much_says_nothing_about_less() -> None:
    """Twice as much in flight brought no more; after the fall more does bring more."""
    limiter = started_at(100)
    flat = replace(full(limiter), itl_s=0.02, itl_target_s=0.05, max_inflight=limiter.limit)
    for number in range(20):
        limiter.observe(replace(flat, max_inflight=100 - number))
    limiter.observe(replace(flat, failed=True))
    least, limits = limiter.limit, []
    for _ in range(20):
        limits.append(
            limiter.observe(
                replace(full(limiter), itl_s=0.02, itl_target_s=0.05, tokens=5 * limiter.limit)
            )
        )
    assert limits == sorted(limits)
    assert limits[-1] >= least + 15


def test_a_window_ends_with_enough_seen_and_not_too_soon() -> None:
    assert not window_is_over(0.5, 100, 10_000, failed=True)
    assert not window_is_over(60.0, 19, 499, failed=False)
    assert window_is_over(1.0, 20, 0, failed=False)
    assert window_is_over(1.0, 0, 500, failed=False)
    assert window_is_over(1.0, 0, 0, failed=True)
