"""Do tenants take turns by their counters, as in VTC?"""

from headway.sim.baselines.vtc import new_vtc
from tests.sim.baselines.table import BULK, CRITICAL, ask, run, setup


def order(plans: list[dict[str, int]]) -> list[str]:
    """Return who was first seen in which order."""
    seen: list[str] = []
    for plan in plans:
        seen += [name for name in plan if name not in seen]
    return seen


def test_the_lowest_counter_goes_next_with_its_oldest_request() -> None:
    """One slot; each request costs its prompt plus 2: a 10, b 4, so b has three turns to a's one.

    Counters when chosen: a 0; b 0; b 4; b 8; then a 10, b 12.
    """
    waiting = [ask("a1", 8, 1), ask("a2", 8, 1)] + [ask(f"b{n}", 2, 1) for n in range(1, 5)]
    plans = run(new_vtc(setup(slots=1)), {0: waiting}, 6)
    assert order(plans) == ["a1", "b1", "b2", "b3", "a2", "b4"]


def test_generated_tokens_cost_twice_as_much_while_they_come() -> None:
    """a1 costs 2 + 3 * 2 = 8 by the time it ends, as much as b's prompt of 6 plus its token."""
    waiting = [ask("a1", 2, 3), ask("a2", 2, 1), ask("b1", 6, 1), ask("b2", 1, 1)]
    plans = run(new_vtc(setup(slots=1)), {0: waiting}, 6)
    assert order(plans) == ["a1", "b1", "a2", "b2"]


def test_who_returns_is_lifted_to_the_lowest_counter_of_those_waiting() -> None:
    """After five turns of a, whose counter is 20, b gets one turn, not five."""
    arrivals = {
        0: [ask(f"a{n}", 2, 1) for n in range(9)],
        5: [ask(f"b{n}", 2, 1) for n in range(4)],
    }
    plans = run(new_vtc(setup(slots=1)), arrivals, 9)
    assert order(plans) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "a6", "b1"]


def test_weights_divide_the_charge() -> None:
    waiting = [ask(f"a{n}", 2, 1) for n in range(6)]
    waiting += [ask(f"b{n}", 2, 1, weight=2.0) for n in range(6)]
    plans = run(new_vtc(setup(slots=1)), {0: waiting}, 9)
    assert sorted(name[0] for name in order(plans)) == list("aaabbbbbb")


def test_it_knows_no_tiers() -> None:
    waiting = [ask("a", 8, 1, BULK), ask("b", 8, 1, CRITICAL)]
    assert order(run(new_vtc(setup()), {0: waiting}, 2)) == ["a", "b"]


def test_one_that_does_not_fit_holds_back_all_others() -> None:
    arrivals = {0: [ask("a", 7, 3)], 1: [ask("b", 8, 1), ask("c", 1, 1)]}
    plans = run(new_vtc(setup(blocks=3)), arrivals, 4)
    assert plans == [{"a": 7}, {"a": 1}, {"a": 1}, {"b": 8}]


def test_a_preempted_request_returns_first_and_is_not_charged_again() -> None:
    """b1 gives way to a1. When it returns, a stands at 10 and b at 6, so b2 is before a2.

    Charged again, b would stand at 11, and a2 would go first.
    """
    scheduler = new_vtc(setup(blocks=3))
    arrivals = {0: [ask("a1", 4, 3), ask("b1", 4, 2)], 2: [ask("b2", 4, 1), ask("a2", 4, 1)]}
    plans = run(scheduler, arrivals, 5)
    assert plans == [
        {"a1": 4, "b1": 4},
        {"a1": 1},
        {"a1": 1},
        {"b1": 5, "b2": 3},
        {"b2": 1, "a2": 4},
    ]
