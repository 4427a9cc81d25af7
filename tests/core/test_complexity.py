"""Does a decision take longer because more requests wait? (I12, in lines run, not in time.)"""

from collections.abc import Callable
from functools import partial
from itertools import islice

import pytest

from headway.core.cost import Prices
from headway.core.dispatch import Dispatcher
from headway.core.fairness import FairQueue
from headway.core.need import Amount
from headway.core.tier import Tiers
from tests.core.scenario import PATIENT, bounded, request
from tests.lines import lines_run

FREE = (1, 1, 1)


def filled(size: int, tenants: int, tiers: Tiers) -> Dispatcher:
    """Return a dispatcher with `size` requests waiting, spread over tenants and tiers."""
    flow = Dispatcher(tiers, Prices())
    for number in range(size):
        flow.enqueue(
            request(
                f"r{number}",
                number % 3,
                f"t{number % tenants}",
                cost=1.0 + number * 7919 % 97,
                arrival=number * 31 % size / size,
                deadline=1e6 + number * 7919 % size,
            ),
            0.0,
        )
    return flow


def worst_of_each(size: int, tenants: int) -> dict[str, int]:
    """Return the most lines that one call of each kind ran, over 30 calls."""
    flow = filled(size, tenants, bounded(PATIENT, max_queued=size // 3 + 1))  # all are full
    worst: dict[str, int] = {}

    def measure(name: str, action: Callable[[], object]) -> None:
        worst[name] = max(worst.get(name, 0), lines_run(action))

    for number in range(30):
        # A newcomer, for which whoever holds two gives way.
        new = request(f"new{number}", number % 3, f"new{number}", deadline=2e6)
        measure("enqueue", partial(flow.enqueue, new, 0.0))
        measure("next", partial(flow.next, number / 10, FREE))  # promotions come due meanwhile
        middle = f"r{size // 2 + number * 97 % (size // 4)}"
        measure("remove", partial(flow.remove, middle))
        measure("settle", partial(flow.settle, f"r{number}", 5.0, float(number)))
        measure("idle", partial(flow.next, 0.0, (0, 0, 0)))
        measure("predict", partial(flow.predicted_wait, new, 0.0))
    return worst


@pytest.mark.parametrize("tenants", [1, 16, 300])
def test_sixteen_times_the_queue_does_not_take_twice_the_steps(tenants: int) -> None:
    small, large = worst_of_each(1_000, tenants), worst_of_each(16_000, tenants)
    for name, lines in large.items():
        assert lines <= 2 * small[name], f"{name}: {small[name]} lines, then {lines}"


def test_refusing_at_a_full_queue_is_cheap() -> None:
    counts = {}
    for size in (1_002, 16_002):
        flow = filled(size, 1, bounded(PATIENT, max_queued=size // 3))
        counts[size] = [
            lines_run(partial(flow.enqueue, request("more", 1, "t0"), 0.0)),
            lines_run(partial(flow.enqueue, request("other", 1, "b"), 0.0)),
        ]
    small, large = counts.values()
    assert large[0] <= 2 * small[0]
    assert large[1] <= 2 * small[1]


@pytest.mark.parametrize("shares", ["grow", "fall"])
def test_the_first_arrival_at_a_full_queue_of_many_tenants_is_cheap(shares: str) -> None:
    """Whose shares have all changed since somebody last had to make room."""
    counts = {}
    for size in (600, 9_600):
        flow = filled(2 * size, size // 3, bounded(PATIENT, max_queued=size))
        if shares == "fall":
            for number in range(1, size, 3):
                assert flow.remove(f"r{number}")
        for number in range(size - flow.queue_depth(1)):
            flow.enqueue(request(f"x{number}", 1, f"x{number}"), 0.0)
        first = [partial(flow.enqueue, request(f"y{n}", 1, f"y{n}"), 0.0) for n in range(3)]
        counts[size] = max(lines_run(call) for call in first)
        assert flow.queue_depth(1) == size
    small, large = counts.values()
    assert large <= 2 * small


def test_refusing_looks_at_nobody_less_urgent() -> None:
    """At a gateway full of bulk, for one that would not fit if all of it left."""
    counts = {}
    for size in (1_000, 16_000):
        flow = Dispatcher(PATIENT, Prices(), bounds=Amount(2**40, size))
        for number in range(size - 1):
            flow.enqueue(request(f"r{number}", 2, f"t{number % 8}", tokens=1), 0.0)
        flow.enqueue(request("urgent", 0, tokens=1), 0.0)
        refused = request("more", 1, tokens=size)
        counts[size] = lines_run(partial(flow.enqueue, refused, 0.0))
        assert len(flow) == size
    small, large = counts.values()
    assert large <= 2 * small


def queue_that_half_has_left(size: int, how: str) -> FairQueue:
    """Return a queue of `size` of which those from the second to the middle left, or moved back."""
    queue = FairQueue()
    for number in range(size):
        tenant = "a" if how == "one tenant" else f"t{number}"
        queue.push(f"r{number}", tenant, cost=1.0, key=0.0)
    for number in range(1, size // 2):
        if how == "charged":
            queue.charge(f"t{number}", 10.0)
        else:
            queue.remove(f"r{number}")
    return queue


def first_four(queue: FairQueue) -> list[str]:
    """Return who would be popped first."""
    return list(islice(queue.in_order(), 4))


@pytest.mark.parametrize("how", ["one tenant", "each their own", "charged"])
def test_neither_reading_nor_a_change_costs_more_for_those_that_have_left(how: str) -> None:
    counts = {}
    for size in (1_000, 16_000):
        queue = queue_that_half_has_left(size, how)
        counts[size] = [
            lines_run(partial(first_four, queue)),
            lines_run(queue.send),
            lines_run(partial(queue.push, "new", "new", cost=1.0, key=0.0)),
            lines_run(partial(queue.remove, f"r{size - 1}")),
            lines_run(partial(queue.charge, f"t{size - 2}", 1.0)),
            lines_run(queue.send),
        ]
    for small, large in zip(*counts.values(), strict=True):
        assert large <= 2 * small


def test_control_a_linear_step_is_noticed() -> None:
    small, large = (filled(size, 4, PATIENT) for size in (1_000, 16_000))
    assert lines_run(large.check_integrity) > 8 * lines_run(small.check_integrity)
