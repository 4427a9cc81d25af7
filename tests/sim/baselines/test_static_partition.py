"""Does each tier get its part, and nothing of what the others leave?"""

import pytest

from headway.core.tier import Tier, Tiers
from headway.errors import ConfigError
from headway.sim.baselines.static_partition import StaticPartition, shares
from tests.sim.baselines.table import BULK, CRITICAL, NORMAL, ask, run, setup


def test_each_tier_computes_within_its_tokens_and_slots() -> None:
    """Of 10 slots and 20 tokens, critical has 4 and 8, the others 3 and 6 each."""
    waiting = [ask(f"c{n}", 1, 2, CRITICAL) for n in range(5)]
    waiting += [ask("n", 9, 1, NORMAL), ask("b", 20, 1, BULK)]
    plans = run(StaticPartition(setup(slots=10, tokens=20)), {0: waiting}, 4)
    assert plans == [
        {"c0": 1, "c1": 1, "c2": 1, "c3": 1, "n": 6, "b": 6},
        {"c0": 1, "c1": 1, "c2": 1, "c3": 1, "n": 3, "b": 6},
        {"c4": 1, "b": 6},
        {"c4": 1, "b": 2},
    ]


def test_what_a_tier_leaves_unused_nobody_gets() -> None:
    plans = run(StaticPartition(setup(slots=10, tokens=20)), {0: [ask("b", 20, 1, BULK)]}, 4)
    assert plans == [{"b": 6}, {"b": 6}, {"b": 6}, {"b": 2}]


def test_blocks_are_divided_too() -> None:
    scheduler = StaticPartition(setup(slots=10, tokens=20, blocks=10))
    waiting = [ask("b1", 6, 2, BULK), ask("b2", 6, 1, BULK), ask("n1", 4, 1, NORMAL)]
    plans = run(scheduler, {0: waiting}, 3)
    assert plans == [{"b1": 6, "n1": 4}, {"b1": 1}, {"b2": 6}]


def test_the_step_and_the_stats_are_the_sums_of_the_parts() -> None:
    scheduler = StaticPartition(setup(slots=10, tokens=20, blocks=10))
    scheduler.add(ask("a", 3, 2, CRITICAL), 0.0)
    scheduler.add(ask("b", 3, 2, BULK), 0.0)
    step = scheduler.plan(0.0)
    assert step is not None
    assert (step.features.num_tokens, step.features.num_prefills) == (6, 2)
    assert (step.num_tokens, step.budget_tokens) == ((3, 0, 3), 20)
    stats = scheduler.stats()
    assert (stats.running, stats.waiting) == ((1, 0, 1), (0, 0, 0))
    assert stats.kv_used == pytest.approx(0.2)
    assert {e.request_id for e in scheduler.done(step, 1.0, 1.0)} == {"a", "b"}


def test_shares_are_knobs_and_equal_when_the_tiers_are_others() -> None:
    assert shares({}, Tiers()) == (0.4, 0.3, 0.3)
    assert shares({"share_critical": 0.6, "share_bulk": 0.1}, Tiers()) == (0.6, 0.3, 0.1)
    two = Tiers((Tier(name="paid", rank=0), Tier(name="free", rank=1)))
    assert shares({}, two) == (0.5, 0.5)


@pytest.mark.parametrize("share_bulk", [0.5, 0.0])
def test_impossible_shares_are_refused(share_bulk: float) -> None:
    with pytest.raises(ConfigError, match=r"policy.*share_bulk"):
        StaticPartition(setup(share_bulk=share_bulk))


def test_an_engine_too_small_to_divide_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs"):
        StaticPartition(setup(slots=2))


def test_a_request_larger_than_its_part_is_refused() -> None:
    scheduler = StaticPartition(setup(slots=10, tokens=20, blocks=10))
    with pytest.raises(ConfigError, match="never fits"):
        scheduler.add(ask("b", 12, 1, BULK), 0.0)
    scheduler.check_integrity()
