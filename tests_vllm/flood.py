"""What happens under a flood of bulk work, in virtual time?

The schedulers are vLLM's own or ours; a step takes what an affine model of a small machine says,
with some noise. The same seed gives the same arrivals to each.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headway.vllm_plugin import QoSScheduler
from tests_vllm.engine import BULK, CRITICAL, Engine, starts_of

BASE_S, PREFILL_S, DECODE_S, CONTEXT_S = 0.024, 0.0009, 0.0026, 1e-6
NOISE = 0.05
NUM_CALLERS = 48
WARMUP_S = 30.0


class VirtualTime:
    """The clock of the scheduler that is tried."""

    now = 0.0


class TimedScheduler(QoSScheduler):
    """Ours, on virtual time."""

    clock = staticmethod(lambda: VirtualTime.now)


@dataclass
class Figures:
    """What clients saw after the warm-up, in seconds and tokens."""

    seconds: float
    ttft_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)
    num_bulk_tokens: int = 0

    @property
    def bulk_per_s(self) -> float:
        """Bulk tokens per second."""
        return self.num_bulk_tokens / self.seconds


def p99(values: list[float]) -> float:
    """Return the value that 1 % exceed."""
    return sorted(values)[int(0.99 * len(values))]


def step_s(output: Any) -> float:
    """Return what a step takes, without noise."""
    seconds, starts = BASE_S, starts_of(output)
    for name, num_tokens in output.num_scheduled_tokens.items():
        cost_s = DECODE_S if num_tokens == 1 else num_tokens * PREFILL_S
        seconds += cost_s + CONTEXT_S * starts[name]
    return seconds


class Flood:
    """Bulk callers in a closed loop, and critical requests at random, `every_s` on average."""

    def __init__(self, engine: Engine, *, every_s: float = 2.0, seed: int = 0) -> None:
        VirtualTime.now = 0.0
        self._engine = engine
        self._rng, self._noise = random.Random(seed), random.Random(seed + 1)
        self._names = (f"{index}" for index in range(10**9))
        self._critical_at = self._arrivals(every_s)
        self._next_at = next(self._critical_at)
        self._born: dict[str, float] = {}
        self._latest: dict[str, float] = {}

    def _arrivals(self, every_s: float) -> Iterator[float]:
        at, rng = 0.0, random.Random(7)
        while True:
            at += rng.expovariate(1.0 / every_s)
            yield at

    def _ask_bulk(self) -> None:
        prompt = self._rng.randrange(360, 440)
        self._engine.add(f"b{next(self._names)}", BULK, prompt=prompt, max_tokens=128)

    def run(self, duration_s: float) -> Figures:
        """Let it run for that long after the warm-up."""
        figures = Figures(duration_s)
        for _ in range(NUM_CALLERS):
            self._ask_bulk()
        while VirtualTime.now < WARMUP_S + duration_s:
            while self._next_at <= VirtualTime.now:
                name = f"c{next(self._names)}"
                self._engine.add(name, CRITICAL, prompt=64, max_tokens=32)
                self._born[name] = self._next_at
                self._next_at = next(self._critical_at)
            before = {name: len(tokens) for name, tokens in self._engine.outputs.items()}
            self._engine.step(self._take)
            self._deliver(before, figures)
        return figures

    def _take(self, output: Any) -> None:
        """Let the time pass that a step takes."""
        VirtualTime.now += step_s(output) * self._noise.lognormvariate(0, NOISE)

    def _deliver(self, before: dict[str, int], figures: Figures) -> None:
        now, counted = VirtualTime.now, VirtualTime.now > WARMUP_S
        for name, tokens in list(self._engine.outputs.items()):
            num_new = len(tokens) - before.get(name, 0)
            if num_new and counted:
                if name[0] == "b":
                    figures.num_bulk_tokens += num_new
                elif name in self._latest:
                    figures.gap_s.append(now - self._latest[name])
                else:
                    figures.ttft_s.append(now - self._born[name])
            if num_new:
                self._latest[name] = now
            if name not in self._engine.scheduler.requests:
                del self._engine.outputs[name]
                if name[0] == "b":
                    self._ask_bulk()


def flood(model: str, cls: Any, **how: Any) -> Figures:
    """Return the figures of a scheduler class; `how` may set the engine and the flood."""
    every_s = how.pop("every_s", 2.0)
    duration_s = how.pop("duration_s", 150.0)
    size = {"max_num_seqs": 32, "max_num_batched_tokens": 2048, "num_blocks": 2000, **how}
    return Flood(Engine(model, cls=cls, **size), every_s=every_s).run(duration_s)
