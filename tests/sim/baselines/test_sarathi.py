"""Is batching stall-free, within the chunk, and in the order of arrival?"""

import pytest

from headway.errors import ConfigError
from headway.sim.baselines.sarathi import new_sarathi
from tests.sim.baselines.table import BULK, CRITICAL, ask, run, setup


def test_decodes_first_then_the_started_prefill_then_new_ones_within_the_chunk() -> None:
    arrivals = {0: [ask("a", 2, 4)], 1: [ask("b", 9, 2), ask("c", 3, 1)]}
    plans = run(new_sarathi(setup(chunk_size=6)), arrivals, 5)
    assert plans == [
        {"a": 2},
        {"a": 1, "b": 5},
        {"a": 1, "b": 4, "c": 1},
        {"a": 1, "b": 1, "c": 2},
        {},
    ]


def test_a_decode_is_never_left_out_for_a_prefill() -> None:
    scheduler = new_sarathi(setup(chunk_size=8))
    plans = run(scheduler, {0: [ask("a", 1, 4)], 1: [ask("b", 20, 1)]}, 4)
    assert plans == [{"a": 1}, {"a": 1, "b": 7}, {"a": 1, "b": 7}, {"a": 1, "b": 6}]


def test_it_knows_no_tiers() -> None:
    waiting = [ask("a", 8, 1, BULK), ask("b", 8, 1, CRITICAL)]
    assert run(new_sarathi(setup()), {0: waiting}, 2) == [{"a": 8}, {"b": 8}]


def test_a_prompt_takes_all_its_blocks_at_admission() -> None:
    scheduler = new_sarathi(setup())
    run(scheduler, {0: [ask("a", 20, 2)]}, 1)
    assert scheduler.stats().kv_used == pytest.approx(0.05)


def test_an_admission_leaves_one_percent_free_unless_nobody_runs() -> None:
    """a needs all 200 blocks and gets them; b's 2 would leave one of the 2 that are kept."""
    assert run(new_sarathi(setup(blocks=200)), {0: [ask("a", 800, 1)]}, 1) == [{"a": 8}]
    arrivals = {0: [ask("a", 4, 9), ask("b", 4 * 198, 1)]}
    assert run(new_sarathi(setup(blocks=200)), arrivals, 1) == [{"a": 4}]
    arrivals = {0: [ask("a", 4, 9), ask("b", 4 * 197, 1)]}
    assert run(new_sarathi(setup(blocks=200)), arrivals, 1) == [{"a": 4, "b": 4}]


def test_a_decode_without_a_block_preempts_the_last_that_runs() -> None:
    """Four blocks: a, b and c hold three, a takes the fourth, so c gives way for b's."""
    scheduler = new_sarathi(setup(tokens=12, blocks=4))
    arrivals = {0: [ask("a", 4, 3), ask("b", 4, 3), ask("c", 4, 2)]}
    assert run(scheduler, arrivals, 5) == [
        {"a": 4, "b": 4, "c": 4},
        {"a": 1, "b": 1},
        {"a": 1, "b": 1},
        {"c": 5},
        {},
    ]
    stats = scheduler.stats()
    assert (stats.num_preemptions, stats.num_recomputed_tokens) == (1, 4)


def test_the_last_one_gives_way_itself_when_nobody_is_behind_it() -> None:
    scheduler = new_sarathi(setup(blocks=3))
    arrivals = {0: [ask("a", 4, 4), ask("b", 4, 2)]}
    assert run(scheduler, arrivals, 5) == [
        {"a": 4, "b": 4},
        {"a": 1},
        {"a": 1},
        {"a": 1},
        {"b": 5},
    ]


def test_no_more_run_than_a_step_has_tokens_so_that_no_decode_is_left_out() -> None:
    waiting = [ask(name, 1, 3) for name in "abcd"]
    plans = run(new_sarathi(setup(chunk_size=3)), {0: waiting}, 2)
    assert plans == [{"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}]


def test_a_chunk_of_nothing_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"policy\.chunk_size"):
        new_sarathi(setup(chunk_size=0))


def test_aborted_in_the_middle_of_a_prefill() -> None:
    scheduler = new_sarathi(setup())
    arrivals = {0: [ask("a", 20, 1), ask("b", 8, 1)]}
    assert run(scheduler, arrivals, 3, aborts={1: "a"}) == [{"a": 8}, {"b": 8}, {}]
    assert scheduler.stats().kv_used == 0.0
