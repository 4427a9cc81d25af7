"""G5: are 85 to 95 % of the waits within what was predicted as their p90?"""

import pytest

from tests.core.waits import SCENARIOS, Waits, waits_of


@pytest.fixture(scope="module", params=SCENARIOS)
def waits(request: pytest.FixtureRequest) -> Waits:
    """Return the waits of a scenario, at a fixed seed."""
    return waits_of(request.param, seed=7)


def test_g5_of_actual_waits_85_to_95_percent_are_within_the_predicted_p90(waits: Waits) -> None:
    assert len(waits.judged()) > 2000
    assert 0.85 <= waits.within_p90() <= 0.95
    for rank in range(3):
        if len(waits.judged(rank)) > 1000:
            assert 0.85 <= waits.within_p90(rank) <= 0.95, f"tier {rank}"


def test_about_half_are_within_the_p50(waits: Waits) -> None:
    assert 0.40 <= waits.within_p50() <= 0.60


def test_the_p90_is_not_reached_by_telling_everybody_to_wait_for_ever(waits: Waits) -> None:
    assert waits.excess() < 3.0
