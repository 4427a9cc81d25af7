"""Does a real vLLM stay consistent whatever arrives and leaves?

`python -m tests_vllm.fuzz '{"seconds": 600, "seed": 1}'` runs a model under random load for that
long, or for a number of `steps`, checks vLLM's books and ours after every step, lets everybody
finish, and prints what happened. vLLM's own assertions are on, as always. `drafts` and `caching`
are as in `generate.py`.
"""

import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Any

from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.sampling_params import RequestOutputKind

from tests_vllm.child import print_result
from tests_vllm.engine import BULK, CRITICAL, NORMAL
from tests_vllm.generate import counts, engine_args

NUM_BLOCKS = 18
"""Of 32 tokens, one of them never used: three long requests do not fit at once."""
MOST_AT_ONCE = 24
LONGEST_PROMPT, LONGEST_OUTPUT = 150, 50
TOKENS = range(1000, 20_000)


@dataclass
class Asked:
    """One request under way: how many choices, and how long each is going to be."""

    num_choices: int
    num_tokens: int


def check_blocks(scheduler: Any) -> None:
    """Check that blocks are counted by their holders, and that the others are free (G7)."""
    kv = scheduler.kv_cache_manager
    held: Counter[int] = Counter()
    for group in kv.coordinator.single_type_managers:
        for blocks in group.req_to_blocks.values():
            held.update(block.block_id for block in blocks if not block.is_null)
    pool = kv.block_pool
    for block in pool.blocks:
        if not block.is_null:
            assert block.ref_cnt == held[block.block_id], f"block {block.block_id} has drifted"
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1 - len(held), "blocks are lost"


def check(scheduler: Any) -> None:
    """Check vLLM's books and ours."""
    assert len(scheduler.running) <= scheduler.max_num_running_reqs
    num_running, num_waiting = scheduler.get_request_counts()
    assert num_running + num_waiting == len(scheduler.requests)
    check_blocks(scheduler)
    if hasattr(scheduler, "check_integrity"):
        scheduler.check_integrity()


class Fuzz:
    """Random requests for one engine."""

    def __init__(self, engine: LLMEngine, seed: int) -> None:
        self._engine = engine
        self._scheduler = engine.engine_core.engine_core.scheduler
        self._rng = random.Random(seed)
        self._shared = [self._some_tokens(96) for _ in range(3)]
        self._asked: dict[str, Asked] = {}
        self.happened: Counter[str] = Counter()

    def _some_tokens(self, number: int) -> list[int]:
        return self._rng.choices(TOKENS, k=number)

    def _ask(self) -> None:
        rng = self._rng
        name = f"r{self.happened['requests']}"
        shared = rng.choice(self._shared)[: rng.choice([0, 32, 64, 96])]
        prompt = shared + self._some_tokens(rng.randrange(1, LONGEST_PROMPT - len(shared)))
        asked = Asked(rng.choice([1, 1, 1, 2, 3]), rng.randrange(1, LONGEST_OUTPUT))
        params = SamplingParams(
            n=asked.num_choices,
            temperature=0.0 if asked.num_choices == 1 else 1.0,
            max_tokens=asked.num_tokens,
            ignore_eos=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args={
                "headway_tenant": rng.choice("abc"),
                "headway_weight": rng.choice([0.5, 1.0, 4.0, "nonsense"]),
                "headway_deadline_s": rng.choice([0.01, 30.0, None]),
            },
        )
        prompt_with_salt: Any = {"prompt_token_ids": prompt}
        if rng.random() < 0.3:
            prompt_with_salt["cache_salt"] = rng.choice("xy")
        priority = rng.choice([CRITICAL, NORMAL, BULK, BULK, BULK])
        self._engine.add_request(name, prompt_with_salt, params, priority=priority)
        self._asked[name] = asked
        self.happened["requests"] += 1
        self.happened["choices"] += asked.num_choices

    def _abort(self) -> None:
        name = self._rng.choice(list(self._asked))
        del self._asked[name]
        self._engine.abort_request([name])
        self.happened["aborts"] += 1

    def _step(self) -> None:
        before = self.preemptions()
        for output in self._engine.step():
            if output.finished and output.request_id in self._asked:
                asked = self._asked.pop(output.request_id)
                lengths = [len(each.token_ids) for each in output.outputs]
                assert lengths == [asked.num_tokens] * asked.num_choices, output.request_id
                self.happened["answered"] += 1
        check(self._scheduler)
        self.happened["steps"] += 1
        self.happened["preemptions"] += max(0, self.preemptions() - before)

    def preemptions(self) -> int:
        """Return how often those under way were preempted."""
        return sum(request.num_preemptions for request in self._scheduler.requests.values())

    def run(self, seconds: float, steps: float) -> None:
        """Offer requests for that long, or so many steps, then let the rest end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.happened["steps"] < steps:
            if self._rng.random() < 0.3 and len(self._asked) < MOST_AT_ONCE:
                self._ask()
            if self._asked and self._rng.random() < 0.03:
                self._abort()
            self._step()
        while self._engine.has_unfinished_requests():
            self._step()
        assert not self._asked, f"never answered: {list(self._asked)}"
        assert not self._scheduler.requests, "somebody is still known"


def fuzz(how: dict[str, Any]) -> dict[str, int]:
    """Run as `how` says; return what happened."""
    args = engine_args(os.environ["HEADWAY_TEST_MODEL"], {"ours": True, **how})
    args["num_gpu_blocks_override"] = NUM_BLOCKS
    args["max_num_seqs"] = 6
    engine = LLMEngine.from_engine_args(EngineArgs(**args))
    load = Fuzz(engine, how.get("seed", 0))
    load.run(how.get("seconds", inf), how.get("steps", inf))
    of_vllm = counts(engine)
    drafts = {name: of_vllm[name] for name in ("num_drafted", "num_accepted")}
    return {**load.happened, **drafts}


if __name__ == "__main__":
    print_result(fuzz)
