"""Are targets and budgets those of the machine that was measured?"""

from collections.abc import Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.clock import ManualClock
from headway.core.predictor import StepCoefficients, StepFeatures
from headway.core.promise import TTFT_SHARE, efficient_s, tier_limits
from headway.core.tier import Tiers
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.calibration import FastestSteps, measure_steps
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.options import EngineOptions
from headway.engine.runner import SequenceSlice, StepResult
from tests.engine.tiny import BULK, CRITICAL, request


class TimedRunner(FakeRunner):
    """A runner that takes a known time: 10 ms, and 1 ms for each token.

    While others have the machine, up to step `busy_until`, each step takes 50 times as long.
    """

    def __init__(self, clock: ManualClock, busy_until: int = 0) -> None:
        super().__init__(num_blocks=64)
        self._clock = clock
        self._busy_until = busy_until

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """See `ModelRunner`."""
        seconds = 0.01 + 0.001 * sum(s.end - s.start for s in slices)
        self._clock.advance(seconds * (50 if self.num_steps < self._busy_until else 1))
        return super().execute(slices, copies)


def test_a_line_through_two_measurements() -> None:
    """Base and slope come out."""
    clock = ManualClock()
    measured = measure_steps(TimedRunner(clock), clock, max_tokens=512).step_time
    assert measured.base_s == pytest.approx(0.01)
    assert measured.token_s == pytest.approx(0.001)


def test_a_busy_machine_is_not_taken_for_a_slow_one() -> None:
    """Not by the first few steps, though they take 50 times as long."""
    clock = ManualClock()
    measured = measure_steps(TimedRunner(clock, busy_until=4), clock, max_tokens=512).step_time
    assert measured.base_s == pytest.approx(0.01)
    assert measured.token_s == pytest.approx(0.001)


def test_measuring_ends_however_slow_the_machine_is() -> None:
    """Each length is timed a few times only."""
    clock = ManualClock()
    runner = TimedRunner(clock, busy_until=1000)
    measure_steps(runner, clock, max_tokens=512)
    assert runner.num_steps == 4 + 3 + 4
    still = ManualClock()
    unmoved = FakeRunner(num_blocks=64)
    assert measure_steps(unmoved, still, max_tokens=512).step_time == StepCoefficients(0.0, 0.0)


@given(
    st.floats(0.001, 0.5),
    st.floats(0.0, 0.01),
    st.lists(st.tuples(st.integers(1, 2000), st.floats(1.0, 100.0)), max_size=20),
)
def test_no_step_makes_the_line_lower_than_it_is(
    base_s: float, token_s: float, steps: list[tuple[int, float]]
) -> None:
    """Steps are slower than they need be, by any factor; both ends stay at or above the truth."""

    def truth_s(num_tokens: int) -> float:
        return base_s + num_tokens * token_s

    def measured_s(fastest: FastestSteps) -> float:
        line = fastest.step_time
        return line.base_s + 512 * line.token_s

    fastest = FastestSteps(512)
    fastest.note(1, 50 * truth_s(1))
    fastest.note(512, 50 * truth_s(512))
    for num_tokens, factor in steps:
        before = measured_s(fastest)
        fastest.note(num_tokens, factor * truth_s(num_tokens))
        assert truth_s(512) * (1 - 1e-9) <= measured_s(fastest) <= before * (1 + 1e-9)


def test_one_token_that_took_as_long_as_all_tells_nothing() -> None:
    """A flat line would say that tokens are free, and bound no step at all."""
    fastest = FastestSteps(512)
    fastest.note(512, 0.9)
    fastest.note(1, 0.97)
    assert fastest.step_time == StepCoefficients(0.0, 0.9 / 512)


def test_a_fast_machine_keeps_the_configured_targets() -> None:
    """And an arrival waits at most a share of its TTFT for the step under way."""
    shortest_s = efficient_s(0.002, 0.04, 0.97)
    critical, normal, bulk = tier_limits(Tiers(), shortest_s, max_num_seqs=8, num_blocks=64)
    assert critical.target == Tiers().by_rank(0).target
    assert critical.recent_s == pytest.approx(TTFT_SHARE * 0.5)
    assert normal.recent_s == pytest.approx(TTFT_SHARE * 2.0)
    assert bulk.recent_s == inf


def test_a_slow_machine_stretches_all_targets_alike() -> None:
    """So that the tightest leaves steps about as efficient as full ones."""
    shortest_s = efficient_s(0.03, 0.6, 0.97)
    promises = tier_limits(Tiers(), shortest_s, max_num_seqs=8, num_blocks=64)
    targets = [promise.target for promise in promises]
    tightest = targets[CRITICAL].tpot_s
    assert tightest is not None
    stretch = tightest / 0.05
    assert targets[CRITICAL].gap_s == pytest.approx(0.2 * stretch)
    assert targets[1].ttft_s == pytest.approx(2.0 * stretch)
    assert targets[BULK].tpot_s is None
    assert promises[CRITICAL].recent_s == pytest.approx(TTFT_SHARE * 0.5 * stretch)
    tokens_per_s = (tightest - 0.03) / tightest
    assert tokens_per_s == pytest.approx(0.97 * (0.6 - 0.03) / 0.6)


@given(st.floats(0.001, 1.0), st.floats(1.0, 50.0), st.floats(0.0, 1.0))
def test_an_efficient_step_is_between_the_shortest_and_a_full_one(
    shortest_s: float, factor: float, efficiency: float
) -> None:
    seconds = efficient_s(shortest_s, factor * shortest_s, efficiency)
    assert shortest_s * (1 - 1e-9) <= seconds <= factor * shortest_s * (1 + 1e-9)


def test_a_calibrated_engine_keeps_steps_short_while_critical_runs() -> None:
    """The budgets bite: K9."""
    clock = ManualClock()
    engine = LLMEngine.from_parts(
        TimedRunner(clock),
        ByteTokenizer(),
        EngineOptions(max_num_batched_tokens=512, num_kv_blocks=64),
        clock,
    )
    recent_s = engine.limits.tiers[CRITICAL].recent_s
    engine.add(request("bulk", 500, 2, BULK))
    engine.step()
    assert engine.stats().last_budget_s == inf
    engine.add(request("critical", 10, 3, CRITICAL))
    engine.step()
    assert engine.stats().last_budget_s == recent_s
    before = clock.now()
    while engine.has_unfinished():
        engine.step()
        assert clock.now() - before <= recent_s * 1.01
        before = clock.now()
    engine.add(request("more", 400, 2, BULK, prompt_seed=1))
    engine.step()
    assert engine.stats().last_budget_s == recent_s
    clock.advance(31.0)
    engine.step()
    assert engine.stats().last_budget_s == inf


def test_steps_of_requests_correct_what_was_measured_on_a_busy_machine() -> None:
    """Targets and predictions are those of the quiet machine after a few steps."""
    clock = ManualClock()
    options = EngineOptions(max_num_batched_tokens=512, num_kv_blocks=64)
    quiet = LLMEngine.from_parts(TimedRunner(clock), ByteTokenizer(), options, clock)
    runner = TimedRunner(clock, busy_until=11)
    engine = LLMEngine.from_parts(runner, ByteTokenizer(), options, clock)
    right = quiet.limits.tiers[CRITICAL].target.ttft_s
    wrong = engine.limits.tiers[CRITICAL].target.ttft_s
    assert right is not None
    assert wrong is not None
    assert wrong > 40 * right
    for size in (600, 90, 300):
        engine.add(request(f"bulk{size}", size, 20, BULK, prompt_seed=size))
        while engine.has_unfinished():
            engine.step()
    assert engine.limits.tiers[CRITICAL].target.ttft_s == pytest.approx(right, rel=0.2)
    assert engine.limits.min_step_s == pytest.approx(quiet.limits.min_step_s, rel=0.2)
    assert engine.predictor is not None
    full = StepFeatures().plus_prefill(300, 0)
    assert engine.predictor.predict(full) == pytest.approx(0.31, rel=0.1)
    stats = engine.stats()
    assert stats.step_s == pytest.approx(stats.busy_s)
    assert stats.num_late_steps <= 2
