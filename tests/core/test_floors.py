"""Does a backlogged tier get its floor in every window, and bank nothing?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.floors import FloorLedger
from tests.core.windows import shortfall

MAX_COST = 10.0


STEPS = st.lists(
    st.tuples(
        # Mostly backlogged, or no window would be long enough to matter.
        st.lists(st.integers(0, 15).map(bool), min_size=3, max_size=3),
        st.lists(st.integers(1, int(MAX_COST)), min_size=3, max_size=3),
    ),
    min_size=50,
    max_size=150,
)
FLOORS = st.tuples(st.integers(0, 45), st.integers(0, 45)).map(
    lambda shares: (0.0, shares[0] / 100, shares[1] / 100)
)


@given(FLOORS, STEPS, st.integers(1, 20))
def test_g1_every_window_of_backlog_holds_the_floor(
    floors: tuple[float, float, float],
    steps: list[tuple[list[bool], list[int]]],
    quantum: int,
) -> None:
    """G1: own service >= floor * total - (quantum + floor tiers * largest floor * largest cost)."""
    ledger = FloorLedger(floors, float(quantum))
    windows: list[list[tuple[float, float]]] = [[], [], []]
    bound = quantum + sum(floor > 0 for floor in floors) * max(floors) * MAX_COST
    for backlogged, costs in steps:
        if not any(backlogged):
            continue
        owed = [rank for rank in ledger.owed() if backlogged[rank]]
        rank = owed[0] if owed else backlogged.index(True)
        served = [0.0, 0.0, 0.0]
        served[rank] = float(costs[rank])
        ledger.settle(served, backlogged)
        for tier in (1, 2):
            if backlogged[tier]:
                windows[tier].append((sum(served), served[tier]))
            else:
                windows[tier].clear()
            if floors[tier] > 0:
                assert shortfall(floors[tier], windows[tier]) <= bound + 1e-9


def test_control_without_the_ledger_the_same_bound_breaks() -> None:
    served = [(10.0, 0.0)] * 100
    assert shortfall(0.05, served) > 1.0 + 0.05 * MAX_COST


def test_a_tier_without_backlog_banks_nothing() -> None:
    ledger = FloorLedger((0.0, 0.2), 1.0)
    for _ in range(100):
        ledger.settle((10.0, 0.0), (True, False))
    assert ledger.deficits[1] == 0
    assert ledger.owed() == ()


def test_a_blocked_tier_keeps_its_claim_but_does_not_pile_it_up() -> None:
    ledger = FloorLedger((0.0, 0.2), 1.0)
    ledger.settle((10.0, 0.0), (True, True))
    before = ledger.deficits[1]
    for _ in range(100):
        ledger.serve(0, 10.0, (True, True), (False, True))
    assert ledger.deficits[1] == before == 2.0


def test_surplus_is_not_counted_against_a_tier_later() -> None:
    ledger = FloorLedger((0.0, 0.2), 1.0)
    ledger.settle((0.0, 1000.0), (True, True))
    ledger.settle((10.0, 0.0), (True, True))
    assert ledger.owed() == (1,)


def test_the_most_owed_goes_first_and_ties_by_rank() -> None:
    ledger = FloorLedger((0.0, 0.1, 0.2, 0.2), 1.0)
    ledger.settle((10.0, 0.0, 0.0, 0.0), (True, True, True, True))
    assert ledger.owed() == (2, 3, 1)


def test_taking_back_what_was_counted_too_much() -> None:
    ledger = FloorLedger((0.0, 0.5), 1.0)
    ledger.settle((0.0, 10.0), (True, True))
    ledger.settle((0.0, -4.0), (True, True))
    assert ledger.deficits[1] == 2.0


@pytest.mark.parametrize(
    ("floors", "quantum"),
    [
        ((0.5, 0.5), 1.0),
        ((-0.1,), 1.0),
        ((1.0,), 1.0),
        ((float("nan"),), 1.0),
        ((0.1,), 0.0),
        ((0.1,), float("inf")),
    ],
)
def test_impossible_floors_are_refused(floors: tuple[float, ...], quantum: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        FloorLedger(floors, quantum)


def test_g1_what_was_owed_outlasts_a_step_in_which_all_were_served() -> None:
    """A tier of a few decodes uses little in one step, and is not thereby paid in full."""
    ledger = FloorLedger((0.0, 0.1), quantum=1.0)
    for _ in range(5):
        ledger.settle((100.0, 0.0), (True, True))
    assert ledger.deficits[1] == pytest.approx(50.0)
    ledger.settle((80.0, 20.0), (True, False), content=(True, True))
    assert ledger.deficits[1] == pytest.approx(40.0), "it got 10 beyond its floor"
    ledger.settle((100.0, 0.0), (True, False), content=(True, True))
    assert ledger.deficits[1] == pytest.approx(40.0), "content, it claims nothing new"
    ledger.settle((100.0, 0.0), (True, False), content=(True, False))
    assert ledger.deficits[1] == 0.0


def test_a_claim_grows_to_the_most_that_is_counted() -> None:
    ledger = FloorLedger((0.0, 0.1), quantum=1.0, most=50.0)
    for _ in range(100):
        ledger.settle((100.0, 0.0), (True, True))
    assert ledger.deficits[1] == 50.0
    ledger.settle((0.0, 40.0), (True, True))
    assert ledger.deficits[1] == pytest.approx(14.0)


FLAGS = st.lists(st.booleans(), min_size=3, max_size=3)


@given(
    FLOORS,
    st.lists(st.tuples(st.integers(0, 2), st.integers(-10, 10), FLAGS, FLAGS), max_size=40),
)
def test_service_of_one_tier_counts_as_that_of_all_in_which_only_one_was_served(
    floors: tuple[float, float, float], services: list[tuple[int, int, list[bool], list[bool]]]
) -> None:
    one, together = FloorLedger(floors, 1.0), FloorLedger(floors, 1.0)
    expected = [0.0, 0.0, 0.0]
    for rank, cost, backlogged, blocked in services:
        served = [cost if other == rank else 0 for other in range(3)]
        one.serve(rank, cost, backlogged, blocked)
        together.settle(served, backlogged, blocked)
        for other, floor in enumerate(floors):
            due = 0.0 if blocked[other] else floor * cost - served[other]
            claims = backlogged[other] and floor > 0
            expected[other] = max(0.0, expected[other] + due) if claims else 0.0
        assert one.deficits == together.deficits == pytest.approx(expected)
