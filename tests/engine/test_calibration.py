"""Are targets and budgets those of the machine that was measured?"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.clock import ManualClock
from headway.core.tier import Tiers
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.calibration import (
    SHORTEST_STEPS_PER_TOKEN,
    SMALLEST_BUDGET,
    FastestSteps,
    StepTime,
    measure_steps,
    tier_budgets,
)
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
    assert measured.per_token_s == pytest.approx(0.001)
    assert measured.at(90) == pytest.approx(0.1)


def test_a_busy_machine_is_not_taken_for_a_slow_one() -> None:
    """Not by the first few steps, though they take 50 times as long."""
    clock = ManualClock()
    measured = measure_steps(TimedRunner(clock, busy_until=4), clock, max_tokens=512).step_time
    assert measured.base_s == pytest.approx(0.01)
    assert measured.per_token_s == pytest.approx(0.001)


def test_measuring_ends_however_slow_the_machine_is() -> None:
    """Each length is timed a few times only."""
    clock = ManualClock()
    runner = TimedRunner(clock, busy_until=1000)
    measure_steps(runner, clock, max_tokens=512)
    assert runner.num_steps == 4 + 3 + 4
    still = ManualClock()
    unmoved = FakeRunner(num_blocks=64)
    assert measure_steps(unmoved, still, max_tokens=512).step_time == StepTime(0.0, 0.0)


@given(
    st.floats(0.001, 0.5),
    st.floats(0.0, 0.01),
    st.lists(st.tuples(st.integers(1, 2000), st.floats(1.0, 100.0)), max_size=20),
)
def test_no_step_makes_the_line_lower_than_it_is(
    base_s: float, per_token_s: float, steps: list[tuple[int, float]]
) -> None:
    """Steps are slower than they need be, by any factor; both ends stay at or above the truth."""
    truth = StepTime(base_s, per_token_s)
    fastest = FastestSteps(512)
    fastest.note(1, 50 * truth.at(1))
    fastest.note(512, 50 * truth.at(512))
    for num_tokens, factor in steps:
        before = fastest.step_time.at(512)
        fastest.note(num_tokens, factor * truth.at(num_tokens))
        assert truth.at(512) * (1 - 1e-9) <= fastest.step_time.at(512) <= before * (1 + 1e-9)


def test_one_token_that_took_as_long_as_all_tells_nothing() -> None:
    """A flat line would say that tokens are free, and bound no step at all."""
    fastest = FastestSteps(512)
    fastest.note(512, 0.9)
    fastest.note(1, 0.97)
    assert fastest.step_time == StepTime(0.0, 0.9 / 512)


def test_a_fast_machine_keeps_the_configured_targets() -> None:
    """And a step takes at most the time of a token, or a fifth of the time to the first."""
    critical, normal, bulk = tier_budgets(StepTime(0.002, 0.0001), Tiers())
    assert critical.target == Tiers().by_rank(0).target
    assert critical.active_budget == pytest.approx((0.05 - 0.002) / 0.0001, abs=1)
    assert critical.recent_budget == pytest.approx((0.1 - 0.002) / 0.0001, abs=1)
    assert normal.active_budget == pytest.approx((0.1 - 0.002) / 0.0001, abs=1)
    assert (bulk.active_budget, bulk.recent_budget) == (None, None)


def test_a_slow_machine_stretches_all_targets_alike() -> None:
    """So that the tightest leaves room for several shortest steps."""
    slow = StepTime(0.029, 0.001)
    budgets = tier_budgets(slow, Tiers())
    targets = [budget.target for budget in budgets]
    stretch = SHORTEST_STEPS_PER_TOKEN * 0.03 / 0.05
    assert targets[CRITICAL].tpot_s == pytest.approx(0.05 * stretch)
    assert targets[1].ttft_s == pytest.approx(2.0 * stretch)
    assert targets[BULK].tpot_s is None
    active = budgets[CRITICAL].active_budget
    assert active is not None
    assert slow.at(active) <= 0.05 * stretch < slow.at(active + 2)


def test_budgets_never_vanish() -> None:
    """However slow a token is; and a machine without measurable time bounds nothing."""
    assert StepTime(1.0, 1.0).tokens_within(0.5) == SMALLEST_BUDGET
    assert StepTime(0.0, 0.0).tokens_within(0.5) > 10**6


def test_a_calibrated_engine_keeps_steps_short_while_critical_runs() -> None:
    """The budgets bite: K9."""
    clock = ManualClock()
    engine = LLMEngine.from_parts(
        TimedRunner(clock),
        ByteTokenizer(),
        EngineOptions(max_num_batched_tokens=512, num_kv_blocks=64),
        clock,
    )
    assert engine.budgets is not None
    engine.add(request("bulk", 500, 2, BULK))
    engine.step()
    assert engine.stats().last_token_budget == 512
    engine.add(request("critical", 10, 3, CRITICAL))
    engine.step()
    assert engine.stats().last_token_budget == engine.budgets[CRITICAL].active_budget
    while engine.has_unfinished():
        engine.step()
    engine.add(request("more", 400, 2, BULK, prompt_seed=1))
    engine.step()
    assert engine.stats().last_token_budget == engine.budgets[CRITICAL].recent_budget
    clock.advance(31.0)
    engine.step()
    assert engine.stats().last_token_budget == 512


def test_steps_of_requests_correct_what_was_measured_on_a_busy_machine() -> None:
    """Targets and budgets are those of the quiet machine after a few steps."""
    clock = ManualClock()
    options = EngineOptions(max_num_batched_tokens=512, num_kv_blocks=64)
    quiet = LLMEngine.from_parts(TimedRunner(clock), ByteTokenizer(), options, clock)
    runner = TimedRunner(clock, busy_until=11)
    engine = LLMEngine.from_parts(runner, ByteTokenizer(), options, clock)
    assert quiet.budgets is not None
    assert engine.budgets is not None
    right = quiet.budgets[CRITICAL].target.ttft_s
    wrong = engine.budgets[CRITICAL].target.ttft_s
    assert right is not None
    assert wrong is not None
    assert wrong > 40 * right
    engine.add(request("bulk", 600, 8, BULK))
    while engine.has_unfinished():
        engine.step()
    assert engine.step_time is not None
    assert engine.step_time.base_s == pytest.approx(0.01)
    assert engine.step_time.per_token_s == pytest.approx(0.001)
    assert engine.budgets[CRITICAL].target.ttft_s == pytest.approx(right)
    engine.add(request("critical", 10, 3, CRITICAL))
    engine.step()
    assert engine.stats().last_token_budget == engine.budgets[CRITICAL].active_budget
    assert engine.stats().last_token_budget == pytest.approx(
        quiet.budgets[CRITICAL].active_budget, abs=1
    )
