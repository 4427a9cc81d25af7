"""Does the priority policy do what vLLM's really does, and no more?"""

from headway.sim.baselines.vllm_priority import new_vllm_priority
from tests.sim.baselines.table import BULK, CRITICAL, NORMAL, ask, run, setup


def test_the_most_urgent_that_waits_is_admitted_next_then_the_oldest() -> None:
    waiting = [ask("a", 8, 1, BULK), ask("b", 8, 1, NORMAL), ask("c", 8, 1), ask("d", 8, 1, 0)]
    plans = run(new_vllm_priority(setup()), {0: waiting}, 5)
    assert plans == [{"d": 8}, {"b": 8}, {"c": 8}, {"a": 8}, {}]


def test_an_urgent_one_waits_for_a_slot_like_any_other() -> None:
    arrivals = {0: [ask("a", 2, 3, BULK)], 1: [ask("b", 2, 1, CRITICAL)]}
    plans = run(new_vllm_priority(setup(slots=1)), arrivals, 4)
    assert plans == [{"a": 2}, {"a": 1}, {"a": 1}, {"b": 2}]


def test_an_urgent_one_waits_for_blocks_as_well() -> None:
    """Nobody is preempted for a waiting request: b's prompt fits only once a has left."""
    arrivals = {0: [ask("a", 7, 3, BULK)], 1: [ask("b", 8, 1, CRITICAL)]}
    plans = run(new_vllm_priority(setup(blocks=3)), arrivals, 4)
    assert plans == [{"a": 7}, {"a": 1}, {"a": 1}, {"b": 8}]


def test_running_requests_are_served_in_the_order_of_admission_not_of_priority() -> None:
    """A bulk prompt that was admitted first keeps nearly the whole budget from critical ones."""
    arrivals = {0: [ask("a", 20, 1, BULK)], 1: [ask("b", 4, 1, CRITICAL)]}
    plans = run(new_vllm_priority(setup()), arrivals, 3)
    assert plans == [{"a": 8}, {"a": 8}, {"a": 4, "b": 4}]


def test_the_least_urgent_gives_way_wherever_it_runs_and_its_tokens_are_back() -> None:
    """a (bulk) is planned first; then b needs a block, so a is taken out of the plan again."""
    scheduler = new_vllm_priority(setup(blocks=3))
    arrivals = {0: [ask("a", 5, 9, BULK)], 1: [ask("b", 4, 2, CRITICAL)]}
    assert run(scheduler, arrivals, 4) == [
        {"a": 5},
        {"a": 1, "b": 4},
        {"b": 1},
        {"a": 7},
    ]
    assert scheduler.stats().num_preemptions == 1


def test_one_that_preempts_itself_ends_the_step_for_those_behind_it() -> None:
    """a (bulk) runs before b and is its own victim: b, which has room, misses that step.

    In vLLM the step is then empty; here the next one is planned at once.
    """
    scheduler = new_vllm_priority(setup(blocks=2))
    arrivals = {0: [ask("a", 4, 3, BULK)], 1: [ask("b", 3, 2, CRITICAL)]}
    first = run(scheduler, {0: arrivals[0]}, 1)
    scheduler.add(arrivals[1][0], 1.0)
    step = scheduler.plan(1.0)
    assert step is not None
    assert first == [{"a": 4}]
    assert step.num_tokens == (0, 0, 1)  # a takes the second block, b waits for one
    scheduler.done(step, 2.0, 1.0)
    assert run(scheduler, {}, 3) == [{"a": 1}, {"b": 3}, {"b": 1}]


def test_victims_by_rank_then_by_arrival() -> None:
    """Four blocks: a, b, c fill three; when a and b need one each, c goes first, then b."""
    scheduler = new_vllm_priority(setup(slots=3, tokens=12, blocks=4))
    arrivals = {0: [ask("a", 4, 6, NORMAL), ask("b", 4, 6, NORMAL), ask("c", 4, 3, BULK)]}
    plans = run(scheduler, arrivals, 3)
    assert plans == [{"a": 4, "b": 4, "c": 4}, {"a": 1, "b": 1}, {"a": 1, "b": 1}]
    assert scheduler.stats().waiting == (0, 0, 1)
