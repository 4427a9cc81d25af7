"""Are steps timed though vLLM asks for the next while one is under way?"""

import pytest

from headway.core.predictor import StepFeatures
from headway.vllm_plugin.step_clock import StepClock, StepUnderWay


def begin(clock: StepClock, at: float) -> object:
    """Ask for a step that is predicted to take a second."""
    token = object()
    clock.begin(StepUnderWay(token, StepFeatures(), at, 1.0))
    return token


def test_one_step_at_a_time_takes_from_its_plan_to_its_end() -> None:
    clock = StepClock()
    assert clock.next_begin(5.0) == 5.0
    token = begin(clock, 5.0)
    done = clock.end(token, 7.0)
    assert done is not None
    assert done[1] == pytest.approx(2.0)


def test_overlapping_steps_run_one_after_the_other() -> None:
    clock = StepClock()
    first = begin(clock, 0.0)
    assert clock.next_begin(0.1) == pytest.approx(1.0)
    second = begin(clock, 0.1)
    assert clock.next_begin(0.2) == pytest.approx(2.0)
    done = clock.end(first, 1.5)
    assert done is not None
    assert done[1] == pytest.approx(1.5)
    assert clock.next_begin(1.5) == pytest.approx(2.5)
    done = clock.end(second, 2.5)
    assert done is not None
    assert done[1] == pytest.approx(1.0)


def test_an_unknown_step_says_nothing_and_lost_ones_are_forgotten() -> None:
    clock = StepClock()
    begin(clock, 0.0)
    kept = begin(clock, 1.0)
    assert clock.end(object(), 2.0) is None
    assert clock.end(kept, 2.0) is not None
    assert clock.next_begin(2.0) == 2.0
