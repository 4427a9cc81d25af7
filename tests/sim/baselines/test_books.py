"""Do the books spare what the prefix cache has, and count what a preemption costs?"""

from headway.core.predictor import StepFeatures
from headway.sim.baselines.books import Books
from headway.sim.baselines.fcfs import new_fcfs
from headway.sim.baselines.sarathi import new_sarathi
from headway.sim.scheduler import Emission
from tests.sim.baselines.table import ask, run, setup


def test_a_shared_prefix_is_computed_once() -> None:
    """The first computes 9 tokens of which 8 are shared; the second, of the same tenant, only 2."""
    waiting = [
        ask("a1", 9, 1, prefix_id="p", num_prefix_tokens=8),
        ask("a2", 10, 1, prefix_id="p", num_prefix_tokens=8),
        ask("b", 9, 1, prefix_id="p", num_prefix_tokens=8),
    ]
    for new in (new_fcfs, new_sarathi):
        scheduler = new(setup(tokens=10, caching=True))
        plans = run(scheduler, {0: waiting[:1], 1: waiting[1:2], 2: waiting[2:]}, 3)
        assert plans == [{"a1": 9}, {"a2": 2}, {"b": 9}]


def test_a_preempted_one_finds_again_what_nobody_has_taken() -> None:
    """Three blocks: b gives way, and finds its first 4 tokens when it returns."""
    arrivals = {0: [ask("a", 4, 3), ask("b", 4, 2)]}
    scheduler = new_fcfs(setup(blocks=3, caching=True))
    assert run(scheduler, arrivals, 4) == [{"a": 4, "b": 4}, {"a": 1}, {"a": 1}, {"b": 1}]
    stats = scheduler.stats()
    assert (stats.num_preemptions, stats.num_recomputed_tokens) == (1, 0)


def test_a_step_takes_the_time_that_it_takes_under_headway() -> None:
    """One token of a prompt is priced as a decode is."""
    slices = {"a": (1, 0), "b": (1, 5), "c": (3, 4)}
    books = Books(setup().shape, 3)
    planned = {}
    for name, (num_tokens, num_computed) in slices.items():
        sequence = books.enter(ask(name, 9, 2))
        books.admit(sequence)
        sequence.num_computed = num_computed
        planned[sequence] = num_tokens
    step = books.step(planned, 8)
    assert step is not None
    assert step.features == StepFeatures.of(list(slices.values()))
    assert (step.features.num_decodes, step.features.num_prefills) == (2, 1)


def test_what_was_taken_is_computed_again_and_counted() -> None:
    """b gives way at once; a's last token needs all four blocks, so b's 4 tokens are gone."""
    arrivals = {0: [ask("a", 8, 6), ask("b", 4, 2)]}
    scheduler = new_fcfs(setup(tokens=12, blocks=4, caching=True))
    plans = run(scheduler, arrivals, 7)
    assert plans == [{"a": 8, "b": 4}, *[{"a": 1}] * 5, {"b": 5}]
    assert scheduler.stats().num_recomputed_tokens == 4


def test_the_last_token_tells_what_the_request_went_through() -> None:
    scheduler = new_fcfs(setup(blocks=3))
    scheduler.add(ask("a", 4, 3), 0.0)
    scheduler.add(ask("b", 4, 2), 0.0)
    last: dict[str, Emission] = {}
    for number in range(4):
        step = scheduler.plan(number)
        assert step is not None
        last |= {e.request_id: e for e in scheduler.done(step, number + 1, 1.0) if e.finished}
    assert (last["a"].num_preemptions, last["b"].num_preemptions) == (0, 1)
    assert scheduler.stats().num_recomputed_tokens == 4
    again = new_fcfs(setup(tokens=10, caching=True))
    cached = []
    for name in ("a1", "a2"):
        again.add(ask(name, 9, 1, prefix_id="p", num_prefix_tokens=8), 0.0)
        step = again.plan(0.0)
        assert step is not None
        cached += [emission.num_cached_tokens for emission in again.done(step, 1.0, 1.0)]
    assert cached == [0, 8]
