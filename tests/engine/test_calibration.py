"""Are targets and budgets those of the machine that was measured?"""

from collections.abc import Sequence

import pytest

from headway.clock import ManualClock
from headway.core.tier import Tiers
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.calibration import (
    SHORTEST_STEPS_PER_TOKEN,
    SMALLEST_BUDGET,
    StepTime,
    measure_step_time,
    tier_budgets,
)
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.options import EngineOptions
from headway.engine.runner import SequenceSlice, StepResult
from tests.engine.tiny import BULK, CRITICAL, request


class TimedRunner(FakeRunner):
    """A runner that takes a known time: 10 ms, and 1 ms for each token."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(num_blocks=64)
        self._clock = clock

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """See `ModelRunner`."""
        self._clock.advance(0.01 + 0.001 * sum(s.end - s.start for s in slices))
        return super().execute(slices, copies)


def test_a_line_through_two_measurements() -> None:
    """Base and slope come out."""
    clock = ManualClock()
    measured = measure_step_time(TimedRunner(clock), clock, max_tokens=512)
    assert measured.base_s == pytest.approx(0.01)
    assert measured.per_token_s == pytest.approx(0.001)
    assert measured.at(90) == pytest.approx(0.1)


def test_a_fast_machine_keeps_the_configured_targets() -> None:
    """And a step takes at most the time of a token, or a fifth of the time to the first."""
    critical, normal, bulk = tier_budgets(StepTime(0.004, 0.0001), Tiers())
    assert critical.target == Tiers().by_rank(0).target
    assert critical.active_budget == pytest.approx((0.05 - 0.004) / 0.0001, abs=1)
    assert critical.recent_budget == pytest.approx((0.1 - 0.004) / 0.0001, abs=1)
    assert normal.active_budget == pytest.approx((0.1 - 0.004) / 0.0001, abs=1)
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
