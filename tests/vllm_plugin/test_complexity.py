"""Does a step of vLLM take longer to plan because more requests wait? (I12, in lines run.)"""

from collections.abc import Callable
from functools import partial

import pytest

from tests.lines import lines_run
from tests.vllm_plugin.double import BULK, CRITICAL, NORMAL, FakeVllm, Request

SMALL, LARGE = 4000, 16_000
"""The smaller has more in each tier than a step looks at, with adapters or refusals."""
MOST_GROWTH = 1.2
"""I12: four times the queue changes what a step takes by less than a fifth."""
STEPS = 16
ADAPTERS = 5


def odd(request: Request, _: FakeVllm) -> bool:
    """Refuse every other request; those that are refused stay first in line."""
    return int(request.request_id[1:]) % 2 == 1


def queued(num_waiting: int, situation: str) -> FakeVllm:
    """Return an engine with so many waiting, in all tiers."""
    engine = FakeVllm(
        max_num_seqs=16,
        max_num_batched_tokens=128,
        num_blocks=40 if situation == "blocks are short" else 1000,
        max_loras=2 if situation == "adapters" else None,
        refuses=odd if situation == "refused" else lambda request, engine: False,
        checks=False,
    )
    for number in range(num_waiting):
        engine.add(
            f"r{number}",
            (CRITICAL, NORMAL, BULK)[number % 3],
            prompt=8 + 7 * number % 30,
            max_tokens=6,
            adapter=number % (ADAPTERS + 1) if situation == "adapters" else 0,
            tenant=f"t{number % 16}",
        )
    return engine


def lines_of_steps(num_waiting: int, situation: str) -> dict[str, list[int]]:
    """Return how many lines each of some steps took, by what was done."""
    engine = queued(num_waiting, situation)
    lines: dict[str, list[int]] = {}
    for number in range(STEPS):
        actions: dict[str, Callable[[], object]] = {
            "plan": engine.plan,
            "step": engine.step,
            "arrive": partial(engine.add, f"r{num_waiting + number}", (NORMAL, BULK)[number % 2]),
            "leave": partial(engine.abort, f"r{num_waiting - 1 - number}"),
        }
        for name, action in actions.items():
            lines.setdefault(name, []).append(lines_run(action))
    return lines


@pytest.mark.parametrize("situation", ["all tiers", "blocks are short", "adapters", "refused"])
def test_i12_four_times_the_queue_makes_no_step_longer(situation: str) -> None:
    small, large = (lines_of_steps(size, situation) for size in (SMALL, LARGE))
    for name, lines in large.items():
        assert sum(lines) < MOST_GROWTH * sum(small[name]), name
        assert max(lines) < MOST_GROWTH * max(small[name]), name


def test_i12_control_asking_about_all_that_wait_is_noticed() -> None:
    small, large = (queued(size, "adapters") for size in (SMALL, LARGE))
    assert lines_run(partial(list, large.waiting)) > 2 * lines_run(partial(list, small.waiting))
