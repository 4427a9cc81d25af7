"""What goes on beside the request that a test looks at?"""

from collections.abc import Iterator
from dataclasses import replace

from headway.core.tier import DEFAULT_TIERS, Tiers
from headway.vllm_plugin.settings import Settings
from tests.vllm_plugin.double import CRITICAL, FakeVllm


def steps_until_served(engine: FakeVllm, name: str, load: Iterator[None], most: int = 400) -> int:
    """Step beside a load until a request gets its first tokens; return how many steps before."""
    for taken in range(most):
        next(load)
        if name in engine.step():
            return taken
    raise AssertionError(f"{name} was not served in {most} steps")


def nothing() -> Iterator[None]:
    while True:
        yield


def critical(engine: FakeVllm, adapter: int = 0) -> Iterator[None]:
    """Keep three critical prompts there."""
    number = 0
    while True:
        there = (each for each in engine.requests.values() if each.request_id.startswith("load"))
        for _ in range(3 - sum(r.num_computed_tokens < r.num_prompt_tokens for r in there)):
            engine.add(f"load{number}", CRITICAL, 40, 2, adapter=adapter)
            number += 1
        yield


def without_floors() -> Settings:
    return Settings(tiers=Tiers(tuple(replace(tier, floor=0.0) for tier in DEFAULT_TIERS)))
