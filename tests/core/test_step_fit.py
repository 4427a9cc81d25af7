"""Does the predictor find out how long steps take, whatever it started from?"""

from collections.abc import Callable
from math import exp
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.predictor import (
    LATE_RATE,
    MAX_SAFETY,
    SAFETY_STEP,
    StepCoefficients,
    StepFeatures,
    StepTimePredictor,
)
from headway.core.step_fit import CoefficientFit

TRUTH = StepCoefficients(0.015, 7e-4, 8e-4, 2e-3, 1.2e-6, 1e-6, 2e-7)


def mixed_step(random: Random) -> StepFeatures:
    """Some decodes and a few chunks."""
    features = StepFeatures()
    for _ in range(random.randint(0, 32)):
        features = features.plus_decode(random.randint(10, 900))
    for _ in range(random.randint(0, 3)):
        features = features.plus_prefill(random.randint(2, 200), random.choice([0, 64, 256]))
    return features


def scaled(factor: float, truth: StepCoefficients = TRUTH) -> StepCoefficients:
    """A prior that knows two of the coefficients, wrong by a factor."""
    return StepCoefficients(factor * truth.base_s, factor * truth.token_s)


@pytest.mark.parametrize("factor", [0.3, 0.6, 1.0, 3.0])
def test_m11_a_wrong_prior_is_corrected_within_fifty_steps(factor: float) -> None:
    """Mean error below 5 % after 50 noisy steps and below 2 % after 500."""
    random = Random(1)
    predictor = StepTimePredictor(scaled(factor))
    errors = []
    for _ in range(1000):
        features = mixed_step(random)
        errors.append(abs(predictor.predict(features) / TRUTH.time_s(features) - 1))
        predictor.observe(features, TRUTH.time_s(features) * exp(random.gauss(0, 0.08)))
    assert sum(errors[50:100]) / 50 < 0.05
    assert sum(errors[500:]) / 500 < 0.02


@pytest.mark.parametrize(
    "noise",
    [
        lambda random: exp(random.gauss(0, 0.1)),
        lambda random: 1 + 0.3 * random.random(),
        lambda random: 1.6 if random.random() < 0.05 else 0.97,
    ],
)
def test_b6_steps_are_late_no_more_often_than_allowed(noise: Callable[[Random], float]) -> None:
    """Late frequency at most the target and what the updates leave open, for any noise."""
    random = Random(2)
    predictor = StepTimePredictor(scaled(1.0))
    late, num_steps = 0, 8000
    for _ in range(num_steps):
        features = mixed_step(random)
        actual_s = TRUTH.time_s(features) * noise(random)
        late += actual_s > predictor.guarded(features)
        predictor.observe(features, actual_s)
    assert late / num_steps <= LATE_RATE + 1 / (SAFETY_STEP * num_steps)
    assert 1.0 <= predictor.safety <= MAX_SAFETY


def test_no_more_caution_than_the_noise_asks_for() -> None:
    """Steps are late half as often as allowed, at least; the margin follows back what fell away."""
    random = Random(4)
    predictor = StepTimePredictor(TRUTH)
    for _ in range(200):
        features = mixed_step(random)
        predictor.observe(features, 1.5 * TRUTH.time_s(features))
    late = 0
    for number in range(16_000):
        features = mixed_step(random)
        actual_s = TRUTH.time_s(features) * exp(random.gauss(0, 0.05))
        late += number >= 8000 and actual_s > predictor.guarded(features)
        predictor.observe(features, actual_s)
    assert late / 8000 >= LATE_RATE / 2
    assert predictor.safety < 1.3


def test_pauses_that_are_too_common_to_allow_for_do_not_shorten_steps_without_end() -> None:
    """One step in five takes twenty times its time: no margin is right for both."""
    random = Random(6)
    predictor = StepTimePredictor(TRUTH)
    for _ in range(3000):
        features = mixed_step(random)
        factor = 20.0 if random.random() < 0.2 else 1.0
        predictor.observe(features, factor * TRUTH.time_s(features))
    assert predictor.safety == pytest.approx(MAX_SAFETY, rel=0.2)
    assert predictor.safety <= MAX_SAFETY


def test_a_long_run_of_equal_steps_leaves_what_was_known_of_others() -> None:
    """What it says nothing about does not become ever more doubtful, or one step would upset it."""
    random = Random(5)
    fit = CoefficientFit((TRUTH.base_s, TRUTH.token_s), (1.0, 100.0))
    for _ in range(20_000):
        fit.learn((1.0, 100.0), exp(random.gauss(0, 0.02)) * (TRUTH.base_s + 100 * TRUTH.token_s))
    fit.learn((1.0, 105.0), 1.04 * (TRUTH.base_s + 105 * TRUTH.token_s))
    assert fit.coefficients == pytest.approx((TRUTH.base_s, TRUTH.token_s), rel=0.3)


def test_a_machine_that_becomes_slower_is_believed_a_pause_is_not() -> None:
    random = Random(3)
    predictor = StepTimePredictor(TRUTH)
    for _ in range(500):
        features = mixed_step(random)
        predictor.observe(features, TRUTH.time_s(features) * exp(random.gauss(0, 0.03)))
    features = mixed_step(random)
    before = predictor.predict(features)
    predictor.observe(features, 20 * before)
    assert predictor.predict(features) == before
    for _ in range(100):
        features = mixed_step(random)
        predictor.observe(features, 2 * TRUTH.time_s(features) * exp(random.gauss(0, 0.03)))
    assert predictor.predict(features) == pytest.approx(2 * TRUTH.time_s(features), rel=0.1)


@pytest.mark.parametrize("times", [2, 10, 100])
def test_a_cold_first_step_does_not_pass_for_a_slow_machine(times: float) -> None:
    """Steps as full as the predictor lets them be in 50 ms are soon that long, not longer."""
    predictor = StepTimePredictor(scaled(1.5))
    first = StepFeatures().plus_prefill(160, 0)
    predictor.observe(first, times * scaled(1.5).time_s(first))
    for _ in range(50):
        time_s = predictor.coefficients
        num_tokens = time_s.tokens_within(0.05 - time_s.base_s, 0, 2048)
        features = StepFeatures().plus_prefill(max(2, num_tokens), 0).plus_decode(400)
        predictor.observe(features, TRUTH.time_s(features))
    assert TRUTH.time_s(features) == pytest.approx(0.05, rel=0.1)


def test_a_kind_of_step_that_always_follows_others_is_learned() -> None:
    """One prompt among decodes of which none is a surprise."""
    random = Random(7)
    truth = StepCoefficients(0.03, 5e-3)
    predictor = StepTimePredictor(StepCoefficients(0.02, 1e-3))
    errors = []
    for number in range(2000):
        features = StepFeatures().plus_decode(300).plus_decode(400)
        if number % 12 == 0:
            features = features.plus_prefill(random.randint(40, 120), 0)
            errors.append(abs(predictor.predict(features) / truth.time_s(features) - 1))
        predictor.observe(features, truth.time_s(features) * exp(random.gauss(0, 0.05)))
    assert sum(errors[-50:]) / 50 < 0.05


def test_equal_steps_teach_nothing_about_others() -> None:
    """Ten thousand steps of one kind leave other kinds predicted sensibly: no wind-up."""
    random = Random(4)
    predictor = StepTimePredictor(TRUTH)
    full = StepFeatures().plus_prefill(256, 0)
    for _ in range(10_000):
        predictor.observe(full, TRUTH.time_s(full) * exp(random.gauss(0, 0.1)))
    for _ in range(50):
        features = mixed_step(random)
        ratio = predictor.predict(features) / TRUTH.time_s(features)
        assert 0.4 < ratio < 2.5
        predictor.observe(features, TRUTH.time_s(features))
    features = mixed_step(random)
    assert predictor.predict(features) == pytest.approx(TRUTH.time_s(features), rel=0.05)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.01, 100), st.floats(0, 2))
def test_i11_coefficients_stay_numbers_of_at_least_zero(
    seed: int, factor: float, spread: float
) -> None:
    """Whatever is measured, `StepCoefficients` takes it; and the covariance stays one."""
    random = Random(seed)
    fit = CoefficientFit((1.0, 0.1, 0.0), (1.0, 10.0, 10.0))
    for _ in range(300):
        x = random.choice([0.0, 5.0, random.uniform(0, 20)])
        row = (1.0, x, x if random.random() < 0.9 else 0.0)
        fit.learn(row, factor * exp(random.gauss(0, spread)))
        assert all(0 <= c < float("inf") for c in fit.coefficients)
    predictor = StepTimePredictor(scaled(1.0))
    for _ in range(100):
        predictor.observe(mixed_step(random), factor * exp(random.gauss(0, spread)))
        assert predictor.coefficients.time_s(mixed_step(random)) >= 0


def test_replay_gives_the_same_predictions() -> None:
    """M15."""
    found = []
    for _ in range(2):
        random, predictor = Random(5), StepTimePredictor(scaled(2.0))
        for _ in range(200):
            features = mixed_step(random)
            predictor.observe(features, TRUTH.time_s(features) * exp(random.gauss(0, 0.1)))
        found.append((predictor.coefficients, predictor.safety))
    assert found[0] == found[1]


@pytest.mark.parametrize("actual_s", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_ignored(actual_s: float) -> None:
    predictor = StepTimePredictor(TRUTH)
    predictor.observe(StepFeatures(num_tokens=1), actual_s)
    assert predictor.coefficients == TRUTH
    assert predictor.safety == pytest.approx(1.2)


def test_a_step_takes_time() -> None:
    with pytest.raises(ValueError, match="must take time"):
        StepTimePredictor(StepCoefficients(0.0))


def test_steps_that_get_shorter_are_predicted_shorter() -> None:
    """Whatever is at 0 already: what it cannot explain is left to the others."""
    predictor = StepTimePredictor(StepCoefficients(0.02, 0.001))
    for number in range(10):
        predictor.observe(StepFeatures.of([(50 - number, 100 * number + 1)]), 0.13)
    for number in range(60):
        features = StepFeatures.of([(40 - number % 10, 0), (1, 400 + number)])
        predictor.observe(features, 0.05)
    assert predictor.predict(features) == pytest.approx(0.05, rel=0.2)
