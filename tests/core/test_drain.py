"""Is the drain rate that of saturation, and does it follow a change?"""

import pytest

from headway.core.drain import MEMORY_S, MIN_SAMPLES, DrainRate


def test_it_is_unknown_at_first() -> None:
    drain = DrainRate()
    assert drain.rate is None
    for number in range(MIN_SAMPLES):
        drain.settle(10.0, 1.0, float(number), saturated=True)
        assert drain.rate is None
    drain.settle(10.0, 1.0, float(MIN_SAMPLES), saturated=True)
    assert drain.rate == pytest.approx(10.0, rel=0.02)


def test_idle_time_does_not_count_as_slowness() -> None:
    drain = DrainRate()
    for number in range(10):
        drain.settle(10.0, 1.0, number * 0.1, saturated=number < 9)
    drain.settle(10.0, 1.0, 3600.0, saturated=True)
    drain.settle(10.0, 1.0, 3600.1, saturated=True)
    assert drain.rate == pytest.approx(100.0, rel=0.02)


@pytest.mark.parametrize("num_waiting", [4, 7])
def test_a_batch_of_ends_that_empties_the_queue_counts_over_the_time_that_it_took(
    num_waiting: int,
) -> None:
    drain = DrainRate()
    for batch in range(60):
        ends_at = 10.0 * batch + 10.0
        drain.filled(ends_at - 9.0)
        for number in range(8):
            saturated = number < num_waiting
            drain.settle(100.0, 10.0, ends_at + 0.0005 * number, saturated=saturated)
    # All that ended while others waited, and at most all that ended, over the nine seconds.
    assert drain.rate is not None
    assert num_waiting * 100.0 / 9.1 <= drain.rate <= 800.0 / 9.0


def test_time_in_which_nothing_could_be_sent_is_no_slowness() -> None:
    """They waited for two minutes, of which those that ended had a place for a second."""
    drain = DrainRate()
    drain.filled(0.0)
    for number in range(10):
        drain.settle(100.0, 1.0, 120.0 + number, saturated=True)
    assert drain.rate == pytest.approx(100.0, rel=0.02)


def test_where_others_waited_at_the_end_before_it_does_not_matter_since_when() -> None:
    rates: list[float | None] = []
    for filled in (False, True):
        drain = DrainRate()
        drain.settle(10.0, 1.0, 0.0, saturated=True)
        for second in range(1, 10):
            if filled:
                drain.filled(second - 0.1)
            drain.settle(10.0, 1.0, float(second), saturated=True)
        rates.append(drain.rate)
    assert rates[0] == rates[1] == pytest.approx(10.0)


@pytest.mark.parametrize("stays_s", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("batch", [1, 8])
def test_those_whose_cost_nobody_knows_do_not_change_the_rate(stays_s: float, batch: int) -> None:
    """Half of them leave early, after a share of the time that they would have taken."""
    drain, now = DrainRate(), 0.0
    for number in range(400):
        leaves = number >= 100 and number % 2 == 0
        service_s = stays_s if leaves else 4.0
        if number % batch == 0:
            now += 4.0 if batch > 1 else service_s
        cost = 40.0 * service_s / 4.0
        drain.settle(40.0 if leaves else cost, service_s, now, saturated=True, known=not leaves)
    assert drain.rate is not None
    expected = 10.0 * batch * (1.0 if batch == 1 else 0.5 * (1.0 + stays_s / 4.0))
    assert drain.rate == pytest.approx(expected, rel=0.05)
    assert drain.mean_cost == pytest.approx(40.0)


def test_who_hangs_counts_no_more_than_it_was_predicted_to_cost() -> None:
    drain = DrainRate()
    for number in range(50):
        drain.settle(10.0, 1.0, float(number), saturated=True)
    drain.settle(10.0, 600.0, 50.0, saturated=True, known=False)
    assert drain.rate == pytest.approx(10.0)


def test_unsaturated_service_says_nothing() -> None:
    drain = DrainRate()
    for number in range(100):
        drain.settle(10.0, 1.0, float(number), saturated=False)
    assert drain.rate is None


def test_it_follows_a_change_of_speed() -> None:
    drain = DrainRate()
    now = 0.0
    for _ in range(1000):
        drain.settle(10.0, 1.0, now := now + 0.1, saturated=True)
    for _ in range(int(3 * MEMORY_S)):
        drain.settle(10.0, 1.0, now := now + 1.0, saturated=True)
    assert drain.rate == pytest.approx(10.0, rel=0.5)


def test_ends_in_one_instant_add_up() -> None:
    drain = DrainRate()
    for second in range(20):
        for _ in range(5):
            drain.settle(4.0, 1.0, float(second), saturated=True)
    assert drain.rate == pytest.approx(20.0, rel=0.1)


@pytest.mark.parametrize("cost", [5e-324, 5.5e-179, 1e-160, 1e-12])
def test_a_cost_too_small_to_calculate_with_is_none(cost: float) -> None:
    drain = DrainRate()
    for number in range(2 * MIN_SAMPLES):
        drain.settle(cost, 1.0, float(number), saturated=True)
    assert (drain.rate, drain.mean_cost, drain.relative_variance) == (None, 0.0, 0.0)
