"""Is as much kept free as urgent requests ask for, and no more?"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.reserve import WINDOWS_TO_LEARN, DemandReserve

TOTALS, CEILINGS = (200, 4000), (20, 400)
LEAST = (4, 80)


def after(rate: float, seconds: float = 200.0, seed: int = 0) -> DemandReserve:
    """A reserve after Poisson arrivals of requests with 10 blocks each, and the time of its end."""
    random, now = Random(seed), 0.0
    reserve = DemandReserve(TOTALS, CEILINGS, 1.0)
    while now < seconds:
        reserve.note(1, 10, now)
        now += random.expovariate(rate)
    return reserve


def test_nothing_is_lent_before_something_is_known() -> None:
    reserve = DemandReserve(TOTALS, CEILINGS, 1.0)
    reserve.note(1, 10, 5.0)
    assert reserve.size(5.0) == CEILINGS
    assert reserve.size(5.0 + WINDOWS_TO_LEARN - 0.5) == CEILINGS
    assert reserve.size(6.0 + WINDOWS_TO_LEARN) == LEAST


@pytest.mark.parametrize(("rate", "most"), [(0.1, 4), (3.0, 11), (100.0, 20)])
def test_it_follows_the_demand_between_its_bounds(rate: float, most: int) -> None:
    """Rate and 2.33 times its square root, from 2 % to the ceiling."""
    slots, blocks = after(rate).size(200.0)
    assert slots == pytest.approx(max(4, min(20, rate + 2.33 * rate**0.5)), abs=2)
    assert slots <= most
    assert blocks == pytest.approx(max(80, min(400, 10 * (rate + 2.33 * rate**0.5))), abs=20)


def test_arrivals_of_a_window_are_within_it_nearly_always() -> None:
    """99 of 100, were they normal: 97 for the Poisson arrivals here."""
    random = Random(1)
    reserve = after(4.0)
    enough, now = 0, 200.0
    for _ in range(1000):
        now += 1.0
        slots, _ = reserve.size(now)
        arrived, at = 0, random.expovariate(4.0)
        while at < 1.0:
            reserve.note(1, 10, now + at)
            arrived, at = arrived + 1, at + random.expovariate(4.0)
        enough += arrived <= slots
    assert enough >= 970


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50), st.integers(0, 500)), max_size=60))
def test_it_stays_within_its_bounds(arrivals: list[tuple[float, int, int]]) -> None:
    reserve, now = DemandReserve(TOTALS, CEILINGS, 1.0), 0.0
    for pause, slots, blocks in arrivals:
        now += pause
        reserve.note(slots, blocks, now)
        for kept, least, most in zip(reserve.size(now), LEAST, CEILINGS, strict=True):
            assert least <= kept <= most


def test_a_long_lull_costs_nothing_and_is_remembered_as_one() -> None:
    reserve = after(100.0)
    assert reserve.size(200.0) == CEILINGS
    assert reserve.size(1e9) == LEAST
