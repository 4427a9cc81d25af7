"""Do tiers get their floors, and tenants their shares, from vLLM's own scheduler and KV cache?

In virtual time, as in `flood.py`: callers of every tier ask again as soon as they are answered, so
each tier is backlogged throughout. Cost is a token computed, twice that for a decode.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from headway.core.tier import Tiers
from tests_vllm.engine import BULK, CRITICAL, NORMAL, Engine, starts_of
from tests_vllm.flood import TimedScheduler, VirtualTime, step_s

MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 32, 2048
NUM_STEPS, WARMUP = 1500, 100


class Caller(NamedTuple):
    """Who asks again and again."""

    priority: int
    tenant: str = "one"
    weight: float = 1.0


class Size(NamedTuple):
    """What the engine may hold, and how long prompts are."""

    max_num_seqs: int = MAX_NUM_SEQS
    max_num_batched_tokens: int = MAX_NUM_BATCHED_TOKENS
    num_blocks: int = 2000
    longest_prompt: int = 400
    chunking: bool = True


SIZE = Size()


class Loop:
    """Callers in a closed loop; `served` is the cost of each step by caller."""

    def __init__(
        self,
        model: str,
        cls: Any,
        callers: Sequence[tuple[Caller, int]],
        size: Size = SIZE,
    ) -> None:
        VirtualTime.now = 0.0
        self.engine = Engine(
            model,
            cls=cls,
            max_num_seqs=size.max_num_seqs,
            max_num_batched_tokens=size.max_num_batched_tokens,
            num_blocks=size.num_blocks,
            chunking=size.chunking,
        )
        self._longest_prompt = size.longest_prompt
        self.served: list[Counter[Caller]] = []
        self._rng = random.Random(1)
        self._asked: dict[str, tuple[Caller, int]] = {}
        self._counter = 0
        for caller, number in callers:
            for _ in range(number):
                self._ask(caller)

    def _ask(self, caller: Caller) -> None:
        self._counter += 1
        name, prompt = f"r{self._counter}", self._rng.randrange(50, self._longest_prompt)
        self._asked[name] = caller, prompt
        self.engine.add(
            name,
            caller.priority,
            prompt=prompt,
            max_tokens=self._rng.randrange(10, 80),
            tenant=caller.tenant,
            weight=caller.weight,
        )

    def _take(self, output: Any) -> None:
        VirtualTime.now += step_s(output)
        costs: Counter[Caller] = Counter()
        for name, start in starts_of(output).items():
            caller, prompt = self._asked[name]
            num_tokens = output.num_scheduled_tokens[name]
            costs[caller] += 2 if num_tokens == 1 and start >= prompt else num_tokens
        self.served.append(costs)

    def run(self, num_steps: int) -> None:
        """Make so many steps."""
        for _ in range(num_steps):
            self.engine.step(self._take)
            for name in [n for n in self._asked if n not in self.engine.scheduler.requests]:
                del self.engine.outputs[name]
                self._ask(self._asked.pop(name)[0])


def most_missing(floor: float, served: Sequence[Counter[Caller]], priority: int) -> float:
    """Return the most by which a tier fell behind its floor in any window."""
    missing = least = most = 0.0
    for costs in served:
        own = sum(cost for caller, cost in costs.items() if caller.priority == priority)
        missing += floor * sum(costs.values()) - own
        least = min(least, missing)
        most = max(most, missing - least)
    return most


FLOODED = [(Caller(CRITICAL), 60), (Caller(NORMAL), 40), (Caller(BULK), 40)]


@pytest.mark.parametrize(("priority", "rank"), [(NORMAL, 1), (BULK, 2)])
def test_g1_no_window_is_further_behind_a_floor_than_stated(
    model: str, priority: int, rank: int
) -> None:
    """U = q + k * rho_max * s, and for each floor the prompt that it admits (docs/policies.md)."""
    loop = Loop(model, TimedScheduler, FLOODED)
    loop.run(NUM_STEPS)
    served = loop.served[WARMUP:]
    floors = [tier.floor for tier in Tiers().all]
    most_in_a_step = max(sum(costs.values()) for costs in served)
    bound = 0.05 * MAX_NUM_BATCHED_TOKENS + 2 * max(floors) * most_in_a_step
    assert most_missing(floors[rank], served, priority) <= bound


@pytest.mark.parametrize("longest_prompt", [400, 1000])
def test_g1_without_chunking_floors_save_up_for_whole_prompts(
    model: str, longest_prompt: int
) -> None:
    """U has the longest prompt besides. There are slots for all; critical keeps the rest."""
    size = Size(128, 1024, 9000, longest_prompt, chunking=False)
    loop = Loop(model, TimedScheduler, FLOODED, size)
    loop.run(NUM_STEPS)
    served = loop.served[WARMUP:]
    most_in_a_step = max(sum(costs.values()) for costs in served)
    floors = [tier.floor for tier in Tiers().all]
    bound = 0.05 * 1024 + longest_prompt + 2 * max(floors) * most_in_a_step
    assert most_missing(floors[1], served, NORMAL) <= bound
    assert most_missing(floors[2], served, BULK) <= bound
    total = sum(sum(costs.values()) for costs in served)
    critical = sum(costs[caller] for costs in served for caller in costs if caller.priority < 0)
    assert critical > 0.75 * total


def test_g2_without_chunking_a_prompt_that_fills_a_step_is_in_the_next_one(model: str) -> None:
    """vLLM drops what does not fit beside the decodes, so those of lower tiers make room."""
    VirtualTime.now = 0.0
    engine = Engine(
        model,
        cls=TimedScheduler,
        max_num_seqs=128,
        max_num_batched_tokens=1024,
        num_blocks=5000,
        chunking=False,
    )

    def take(output: Any) -> None:
        VirtualTime.now += step_s(output)

    for number in range(60):
        engine.add(f"n{number}", NORMAL, prompt=20, max_tokens=900)
    for number in range(60):
        engine.add(f"c{number}", CRITICAL, prompt=300, max_tokens=1)
    while not all(engine.outputs[f"c{number}"] for number in range(60)):
        engine.step(take)
    assert sum(step_tokens == 1 for step_tokens in engine.step(take).values()) == 60
    engine.add("long", CRITICAL, prompt=1000, max_tokens=1)
    assert "long" in engine.step(take)


def test_g1_stock_starves_bulk(model: str) -> None:
    """The control: vLLM's own priority serves nobody else while critical waits."""
    loop = Loop(model, Scheduler, FLOODED)
    loop.run(NUM_STEPS)
    served = loop.served[WARMUP:]
    assert most_missing(0.05, served, BULK) > 0.04 * sum(sum(each.values()) for each in served)


def test_g3_tenants_are_served_by_weight(model: str) -> None:
    tenants = [Caller(BULK, f"t{weight:g}", weight) for weight in (1.0, 2.0, 4.0)]
    loop = Loop(model, TimedScheduler, [(tenant, 40) for tenant in tenants])
    loop.run(NUM_STEPS)
    served = sum(loop.served[WARMUP:], Counter[Caller]())
    by_weight = [served[tenant] / tenant.weight for tenant in tenants]
    largest = 400 + 2 * 80
    assert max(by_weight) - min(by_weight) <= 2 * (2 * MAX_NUM_SEQS + 1) * largest
    assert max(by_weight) < 1.1 * min(by_weight)
