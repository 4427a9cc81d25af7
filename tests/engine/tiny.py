"""What is the smallest engine worth testing?

TINY of the fault list: 12 blocks of 16 tokens, few slots, a small token budget, a runner that
checks every read of the KV pool, and integrity checked after every step.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headway.clock import ManualClock
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.merge import merge_outputs
from headway.engine.options import EngineOptions
from headway.engine.request import EngineRequest, RequestOutput
from headway.engine.sampling_params import SamplingParams

CRITICAL, NORMAL, BULK = 0, 1, 2
RANKS = (CRITICAL, NORMAL, BULK)


class Tiny:
    """A tiny engine with everything that it answered, and a watch on its health."""

    def __init__(self, runner: FakeRunner | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        options: dict[str, Any] = {
            "max_num_seqs": 2,
            "max_num_batched_tokens": 16,
            "calibrate": False,
        }
        self.runner = FakeRunner() if runner is None else runner
        self.engine = LLMEngine.from_parts(
            self.runner, ByteTokenizer(), EngineOptions(**(options | settings)), self.clock
        )
        self.outputs: dict[str, list[RequestOutput]] = {}

    def add(self, request: EngineRequest) -> None:
        """Submit a request."""
        self.engine.add(request)
        self.outputs[request.request_id] = []

    def step(self) -> list[RequestOutput]:
        """Run a step and check what must hold after each (G6, G7, G9)."""
        before = self.engine.stats().num_batched_tokens
        unfinished = self.engine.has_unfinished()
        gained = self.engine.step()
        self.clock.advance(0.01)
        self.engine.check_integrity()
        if unfinished:
            assert self.engine.stats().num_batched_tokens > before, "an empty step (G6)"
        for output in gained:
            self.outputs[output.request_id].append(output)
        return gained

    def run(self, max_steps: int = 5000) -> None:
        """Step until nothing is unfinished, then check that nothing is left behind (I0)."""
        for _ in range(max_steps):
            if not self.engine.has_unfinished():
                break
            self.step()
        assert not self.engine.has_unfinished(), "it does not end (G4)"
        self.check_idle()

    def check_idle(self) -> None:
        """Check invariant I0."""
        stats = self.engine.stats()
        self.engine.check_integrity()
        assert sum(stats.num_running) == sum(stats.num_waiting) == stats.num_held_blocks == 0
        assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks

    def whole(self, request_id: str) -> RequestOutput:
        """Return all that a request gained so far."""
        return merge_outputs(self.outputs[request_id])

    def tokens(self, request_id: str, index: int = 0) -> tuple[int, ...]:
        """Return the tokens of one answer so far."""
        gained = [c for output in self.outputs[request_id] for c in output.choices]
        return tuple(t for choice in gained if choice.index == index for t in choice.token_ids)

    def finish_reasons(self, request_id: str) -> list[str]:
        """Return the finish reasons in the order in which they came."""
        gained = [c for output in self.outputs[request_id] for c in output.choices]
        return [c.finish_reason for c in gained if c.finish_reason is not None]


def request(
    request_id: str,
    num_prompt_tokens: int,
    max_tokens: int,
    rank: int = NORMAL,
    *,
    tenant: str = "",
    prompt_seed: int = 0,
    **params: Any,
) -> EngineRequest:
    """Return a greedy request; equal seeds give prompts that share their beginning."""
    settings: Mapping[str, Any] = {"temperature": 0.0, "ignore_eos": True} | params
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=prompt_tokens(num_prompt_tokens, prompt_seed),
        params=SamplingParams(max_tokens=max_tokens, **settings),
        rank=rank,
        tenant=tenant,
    )


def prompt_tokens(num_tokens: int, seed: int = 0) -> tuple[int, ...]:
    """Return a prompt; the shorter of two with one seed is the beginning of the longer."""
    return tuple((position * 7 + seed * 31 + position // 5) % 256 for position in range(num_tokens))


def alone(wanted: EngineRequest, index: int = 0) -> tuple[int, ...]:
    """Return the answer that a request gets with the whole engine for itself, cache off (G8)."""
    lonely = Tiny(max_num_seqs=8, enable_prefix_caching=False, max_num_batched_tokens=512)
    lonely.add(wanted)
    lonely.run()
    return lonely.tokens(wanted.request_id, index)


def check_answers(tiny: Tiny, requests: Iterable[EngineRequest]) -> None:
    """Check that every answer is the one the request gets alone (G8)."""
    for wanted in requests:
        for index in range(wanted.params.n):
            assert tiny.tokens(wanted.request_id, index) == alone(wanted, index)
