"""Is an estimate what is ahead over the rate, does it rise with that, and does it learn?"""

from math import exp
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.calibration import BURST_MEMORY_S, WaitEstimator
from headway.core.drain import DrainRate
from headway.core.wait import Model, WaitEstimate, model_wait

COSTS = st.floats(0, 1e9)
SHARES = st.floats(0, 0.9)


def drain(cost: float = 10.0, every_s: float = 0.5) -> DrainRate:
    """Return the rate of equal requests that end at equal times, others waiting."""
    rate = DrainRate()
    for number in range(200):
        rate.settle(cost, 1.0, number * every_s, saturated=True)
    return rate


def ahead(own: float = 0.0, above: float = 0.0, **fields: float) -> dict[str, float]:
    rest = {"floor": 0.0, "floors_below": 0.0, "arrivals_above": 0.0, **fields}
    return {"own": own, "above": above, **rest}


def model_of(what: dict[str, float], rate: DrainRate) -> Model:
    model = model_wait(rate, **what)
    assert model is not None
    return model


def wait(what: dict[str, float], rate: DrainRate) -> WaitEstimate:
    """Return the estimate before anything was learned."""
    return WaitEstimator(3).estimate(1, model_of(what, rate))


@pytest.mark.parametrize(
    ("what", "cost", "rate"),
    [
        (ahead(), 10.0, 20.0),
        (ahead(100.0), 110.0, 20.0),
        (ahead(100.0, 50.0), 160.0, 20.0),
        (ahead(100.0, arrivals_above=10.0), 110.0, 10.0),
        (ahead(100.0, floors_below=0.25), 110.0, 15.0),
        # The floor alone is sooner than what is left beside a flood above.
        (ahead(100.0, 1e6, floor=0.1), 110.0, 2.0),
        (ahead(100.0, arrivals_above=1000.0, floor=0.5), 110.0, 10.0),
        (ahead(100.0, arrivals_above=1000.0), 110.0, 0.4),
    ],
)
def test_what_is_ahead_over_what_the_tier_receives(
    what: dict[str, float], cost: float, rate: float
) -> None:
    assert wait(what, drain()).p50_s == pytest.approx(cost / rate, rel=0.02)


@given(COSTS, COSTS, COSTS, COSTS, SHARES, SHARES, st.floats(0, 1e3))
def test_i15_an_estimate_does_not_fall_when_more_is_ahead(
    own: float,
    above: float,
    more_own: float,
    more_above: float,
    floor: float,
    floors_below: float,
    arrivals: float,
) -> None:
    less = ahead(own, above, floor=floor, floors_below=floors_below, arrivals_above=arrivals)
    more = {**less, "own": own + more_own, "above": above + more_above}
    rate = drain()
    low, high = wait(less, rate), wait(more, rate)
    assert 0 < low.p50_s <= high.p50_s * (1 + 1e-9)
    assert low.p50_s <= low.p90_s <= high.p90_s * (1 + 1e-9)


def test_without_a_rate_nothing_is_predicted() -> None:
    assert model_wait(DrainRate(), **ahead(10.0)) is None


def test_the_spread_shrinks_with_the_number_ahead_and_grows_with_the_variance() -> None:
    steady, varied = drain(), DrainRate()
    random = Random(1)
    for number in range(500):
        varied.settle(random.expovariate(0.1), 1.0, number * 0.5, saturated=True)

    def spread(own: float, rate: DrainRate) -> float:
        estimate = wait(ahead(own), rate)
        return estimate.p90_s / estimate.p50_s

    assert spread(10.0, varied) > spread(1000.0, varied) > spread(100_000.0, varied)
    assert spread(10.0, varied) > spread(10.0, steady)


def told(estimator: WaitEstimator, model: Model) -> float:
    """Return the p90 that one would be told."""
    estimate = estimator.estimate(0, model)
    assert estimate is not None
    return estimate.p90_s


def learned(ratio: float, spread: float, count: int = 4000) -> WaitEstimate:
    """Return what is told for 10 s after waits of about `ratio` times what was predicted."""
    estimator, random, rate = WaitEstimator(1), Random(3), drain()
    model = model_of(ahead(190.0), rate)
    for number in range(count):
        estimator.tell(str(number), 0, model, told(estimator, model), 0.0)
        estimator.served(str(number), ratio * 10.0 * random.uniform(1 - spread, 1 + spread))
    assert estimator.counts.judged == [count]
    estimate = estimator.estimate(0, model)
    assert estimate is not None
    return estimate


@pytest.mark.parametrize("ratio", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_a_wrong_model_is_corrected_in_its_middle_and_in_its_spread(
    ratio: float, spread: float
) -> None:
    estimate = learned(ratio, spread)
    assert estimate.p50_s == pytest.approx(ratio * 10.0, rel=0.15)
    assert estimate.p90_s == pytest.approx(ratio * 10.0 * (1 + 0.8 * spread), rel=0.15)


def test_who_left_early_says_nothing_and_who_left_late_says_it_was_late() -> None:
    """Censored observations."""
    estimator = WaitEstimator(1)
    model = model_of(ahead(190.0), drain())
    before = estimator.estimate(0, model)
    for number in range(100):
        estimator.tell(f"early{number}", 0, model, told(estimator, model), 0.0)
        estimator.left(f"early{number}", 9.9)
    assert estimator.estimate(0, model) == before
    assert estimator.counts.judged == [0]
    for number in range(100):
        estimator.tell(f"late{number}", 0, model, told(estimator, model), 0.0)
        estimator.left(f"late{number}", 1000.0)
    after = estimator.estimate(0, model)
    assert before is not None
    assert after is not None
    assert after.p90_s > before.p90_s
    assert (estimator.counts.judged, estimator.counts.within_p90) == ([100], [0])


def test_a_thousand_that_waited_together_move_what_is_told_no_further_than_one_could_know() -> None:
    estimator = WaitEstimator(1)
    model = model_of(ahead(190.0), drain())
    for number in range(2000):  # the first outcomes go further
        estimator.tell(str(number), 0, model, told(estimator, model), 0.0)
        estimator.served(str(number), 10.0 + number % 2)
    before = estimator.estimate(0, model).p50_s
    for number in range(1000):
        estimator.tell(str(number), 0, model, told(estimator, model), 0.0)
    for number in range(500):
        estimator.served(str(number), 1000.0)
    assert estimator.estimate(0, model).p50_s <= 1.5 * before


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_nor_do_all_that_waited_together_until_the_last_is_served(
    count: int, newest_first: bool
) -> None:
    estimator = WaitEstimator(1)
    model = model_of(ahead(190.0), drain())
    for number in range(max(2000, 2 * count)):  # the first outcomes go further
        estimator.tell(str(number), 0, model, told(estimator, model), 0.0)
        estimator.served(str(number), 10.0 + number % 2)
    before = estimator.estimate(0, model).p50_s
    for number in range(count):
        estimator.tell(str(number), 0, model, told(estimator, model), 0.0)
    for number in range(count)[:: -1 if newest_first else 1]:
        estimator.served(str(number), 1000.0)
    assert before < estimator.estimate(0, model).p50_s <= 1.5 * before
    estimator.check_integrity()


def test_the_first_of_a_flow_learn_nothing_from_those_behind_their_own() -> None:
    estimator = WaitEstimator(1)
    model = model_of(ahead(190.0), drain())
    before = estimator.estimate(0, model)
    for number in range(100):
        estimator.tell(str(number), 0, model, before.p90_s, 0.0, behind=True)
        estimator.served(str(number), 1000.0)
    assert estimator.estimate(0, model) == before
    assert estimator.estimate(0, model, behind=True).p90_s > 2 * before.p90_s


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.5, 2.0])
def test_the_first_arrivals_are_no_stream_yet(after_s: float) -> None:
    estimator = WaitEstimator(2)
    estimator.arrived(0, 5.0, 100.0)
    assert estimator.arrivals_above(1, 100.0 + after_s) == 0.0
    estimator.arrived(0, 5.0, 100.001)
    assert 0.0 < estimator.arrivals_above(1, 100.001 + after_s) <= 10.0
    for number in range(1, 600):
        estimator.arrived(0, 5.0, 100.0 + number)
    assert estimator.arrivals_above(1, 700.0) == pytest.approx(5.0, rel=0.1)


def test_arrivals_in_a_burst_count_at_once_and_fade_slowly() -> None:
    estimator = WaitEstimator(2)
    for number in range(1000):
        estimator.arrived(0, 5.0, float(number))
    for number in range(150):
        estimator.arrived(0, 5.0, 1000.0 + number / 10)
    assert estimator.arrivals_above(1, 1015.0) > 25.0
    assert 5.0 < estimator.arrivals_above(1, 1045.0) < 10.0


def test_arrivals_after_a_lull_count_as_soon_as_after_none() -> None:
    estimator = WaitEstimator(2)
    for start in (0.0, 400.0):  # a hundred seconds, and three hundred of silence
        for number in range(2000 if start == 0.0 else 300):
            estimator.arrived(0, 1.0, start + number / 20)
            if start > 0 and number % 100 == 99:
                seconds = (number + 1) / 20
                soonest = 20.0 * (1 - exp(-seconds / BURST_MEMORY_S))
                assert estimator.arrivals_above(1, start + seconds) >= 0.9 * soonest


def test_arrivals_above_are_averaged_over_more_than_a_burst_and_fade() -> None:
    estimator = WaitEstimator(3)
    for number in range(10_000):
        estimator.arrived(0, 5.0, number * 0.1)
        estimator.arrived(2, 5.0, number * 0.1)
    assert estimator.arrivals_above(0, 1000.0) == 0
    assert estimator.arrivals_above(1, 1000.0) == pytest.approx(50.0, rel=0.05)
    assert estimator.arrivals_above(2, 1000.0) == pytest.approx(50.0, rel=0.05)
    assert estimator.arrivals_above(1, 2000.0) < 1.0
