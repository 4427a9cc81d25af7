"""Does the earliest deadline go first, started or not?"""

from headway.core.tier import Tiers
from headway.sim.baselines.sarathi_edf import due, new_sarathi_edf
from tests.sim.baselines.table import BULK, CRITICAL, NORMAL, ask, run, setup


def test_deadlines_come_from_the_tier_then_the_request_then_ten_minutes() -> None:
    tiers = Tiers()
    assert due(ask("a", 1, 1, CRITICAL, arrival=3.0), tiers) == 3.5
    assert due(ask("a", 1, 1, NORMAL, arrival=3.0, deadline=900.0), tiers) == 5.0
    assert due(ask("a", 1, 1, BULK, arrival=3.0, deadline=900.0), tiers) == 900.0
    assert due(ask("a", 1, 1, BULK, arrival=3.0), tiers) == 603.0


def test_an_urgent_prompt_overtakes_the_chunks_of_one_under_way() -> None:
    arrivals = {0: [ask("a", 20, 1, BULK)], 1: [ask("b", 6, 2, CRITICAL, arrival=1.0)]}
    plans = run(new_sarathi_edf(setup()), arrivals, 4)
    assert plans == [{"a": 8}, {"b": 6, "a": 2}, {"b": 1, "a": 7}, {"a": 3}]


def test_an_old_bulk_request_is_before_a_new_critical_one() -> None:
    arrivals = {
        0: [ask("a", 8, 1, CRITICAL, arrival=700.0), ask("b", 8, 1, BULK, arrival=50.0)],
    }
    assert run(new_sarathi_edf(setup()), arrivals, 2) == [{"b": 8}, {"a": 8}]


def test_decodes_come_first_whatever_their_deadline() -> None:
    arrivals = {0: [ask("a", 1, 3, BULK)], 1: [ask("b", 9, 1, CRITICAL, arrival=1.0)]}
    assert run(new_sarathi_edf(setup()), arrivals, 3) == [
        {"a": 1},
        {"a": 1, "b": 7},
        {"a": 1, "b": 2},
    ]


def test_started_prefills_go_on_while_the_most_urgent_finds_no_slot() -> None:
    arrivals = {0: [ask("a", 20, 1, BULK)], 1: [ask("b", 6, 2, CRITICAL, arrival=1.0)]}
    plans = run(new_sarathi_edf(setup(slots=1)), arrivals, 4)
    assert plans == [{"a": 8}, {"a": 8}, {"a": 4}, {"b": 6}]


def test_the_latest_deadline_gives_way_when_blocks_run_out() -> None:
    scheduler = new_sarathi_edf(setup(blocks=3))
    arrivals = {0: [ask("a", 4, 2, BULK), ask("b", 4, 3, CRITICAL)]}
    assert run(scheduler, arrivals, 4) == [{"b": 4, "a": 4}, {"b": 1}, {"b": 1}, {"a": 5}]
