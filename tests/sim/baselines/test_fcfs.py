"""Does the default policy do, step by step, what vLLM does?"""

from headway.sim.baselines.fcfs import new_fcfs
from tests.sim.baselines.table import BULK, CRITICAL, ask, run, setup


def test_a_long_prompt_in_chunks_and_a_short_one_behind_it() -> None:
    plans = run(new_fcfs(setup()), {0: [ask("a", 10, 2), ask("b", 3, 2)]}, 4)
    assert plans == [{"a": 8}, {"a": 2, "b": 3}, {"a": 1, "b": 1}, {}]


def test_what_runs_goes_before_what_waits() -> None:
    arrivals = {0: [ask("a", 2, 4)], 1: [ask("b", 20, 1)], 2: [ask("c", 2, 1)]}
    assert run(new_fcfs(setup()), arrivals, 5) == [
        {"a": 2},
        {"a": 1, "b": 7},
        {"a": 1, "b": 7},
        {"a": 1, "b": 6, "c": 1},
        {"c": 1},
    ]


def test_nobody_is_preempted_for_a_slot_whatever_the_tier() -> None:
    arrivals = {0: [ask("a", 2, 3, BULK)], 1: [ask("b", 2, 1, CRITICAL)]}
    plans = run(new_fcfs(setup(slots=1)), arrivals, 4)
    assert plans == [{"a": 2}, {"a": 1}, {"a": 1}, {"b": 2}]


def test_without_blocks_the_last_gives_way_and_nobody_is_admitted_in_that_step() -> None:
    """Three blocks of 4: a and b fill two, the third goes to a; b gives way and returns first."""
    scheduler = new_fcfs(setup(blocks=3))
    arrivals = {0: [ask("a", 4, 3), ask("b", 4, 2)], 1: [ask("c", 1, 1)]}
    assert run(scheduler, arrivals, 6) == [
        {"a": 4, "b": 4},
        {"a": 1},  # the third block; b preempted; c would fit, but not in this step
        {"a": 1},  # b needs two blocks for its 5 tokens, so it waits, and c behind it
        {"b": 5, "c": 1},
        {},
        {},
    ]
    stats = scheduler.stats()
    assert (stats.num_preemptions, stats.num_recomputed_tokens) == (1, 4)


def test_a_prompt_is_admitted_only_if_all_of_it_fits_but_takes_blocks_chunk_by_chunk() -> None:
    """vLLM's `scheduler_reserve_full_isl`: b's 12 tokens need 3 blocks, 2 are free until a ends."""
    arrivals = {0: [ask("a", 7, 2), ask("b", 12, 1)]}
    scheduler = new_fcfs(setup(blocks=4))
    assert run(scheduler, arrivals, 3) == [{"a": 7}, {"a": 1}, {"b": 8}]
    assert scheduler.stats().kv_used == 0.5


def test_aborted_while_waiting_running_and_in_a_step() -> None:
    scheduler = new_fcfs(setup())
    arrivals = {0: [ask("a", 8, 5), ask("b", 2, 1), ask("c", 2, 3)]}
    assert run(scheduler, arrivals, 2, aborts={1: "b"}) == [{"a": 8}, {"a": 1, "c": 2}]
    step = scheduler.plan(2.0)
    assert step is not None
    scheduler.abort("a")
    scheduler.abort("nobody")
    assert [e.request_id for e in scheduler.done(step, 3.0, 1.0)] == ["c"]
    scheduler.abort("c")
    scheduler.check_integrity()
    assert scheduler.plan(3.0) is None
    assert scheduler.stats().kv_used == 0.0


def test_the_features_tell_decodes_from_prefills() -> None:
    scheduler = new_fcfs(setup())
    scheduler.add(ask("a", 3, 4), 0.0)
    scheduler.add(ask("b", 9, 1, BULK), 0.0)
    first = scheduler.plan(0.0)
    assert first is not None
    scheduler.done(first, 1.0, 1.0)
    step = scheduler.plan(1.0)
    assert step is not None
    features = step.features
    assert (features.num_tokens, features.num_decodes, features.num_prefills) == (5, 1, 1)
    assert (features.decode_context, features.prefill_context) == (3, 5)
    assert features.prefill_work == 4 * (5 + 2)
    assert step.num_tokens == (0, 1, 4)
    assert step.budget_tokens == 8
