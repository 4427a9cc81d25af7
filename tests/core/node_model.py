"""A node of which the best limit is known, for tests of the limiter."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from headway.core.limits import NodeLimiter
from headway.core.window import WindowSignals

TARGET_S = 0.05
TOKENS_PER_REQUEST = 100


def linear(base_s: float, per_request_s: float) -> Callable[[float], float]:
    """A step that takes `base_s`, and more with each that runs: gaps between tokens in seconds."""
    return lambda running: base_s + per_request_s * running


@dataclass(kw_only=True)
class NodeModel:
    """A saturated node, one window at a time: the gateway sends whatever the limit allows.

    `itl` gives the time between tokens with so many running. What exceeds a lowered limit stays
    until it ends. `slots`: more than these wait inside. Signals are noisy by `noise`.
    """

    itl: Callable[[float], float]
    slots: float = float("inf")
    target_s: float | None = TARGET_S
    tells: bool = True
    """Whether it has metrics of its own."""
    noise: float = 0.03
    seed: int = 0
    inflight: float = 0.0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        """The same seed gives the same noise."""
        self.random = Random(self.seed)

    def window(self, limit: int, demand: float = float("inf")) -> WindowSignals:
        """Return what is seen of one window under `limit`, with `demand` requests to be had."""
        self.inflight = start = max(self.inflight, min(limit, demand))
        running = min(start, self.slots)
        itl_s = self.itl(running)
        rate = running / itl_s
        duration_s = max(1.0, 500 / rate)
        completions = rate * duration_s / TOKENS_PER_REQUEST
        self.inflight = max(min(limit, demand), self.inflight - completions)
        wait_s = (start - running) * TOKENS_PER_REQUEST / rate
        return WindowSignals(
            duration_s=duration_s,
            completions=round(completions),
            tokens=round(rate * duration_s * self._noisy()),
            max_inflight=round(start),
            itl_s=None if self.target_s is None else itl_s * self._noisy(),
            itl_target_s=self.target_s,
            queue_wait_p95_s=wait_s if self.tells else None,
            kv_used=0.1 if self.tells else None,
            num_preemptions=0 if self.tells else None,
        )

    def run(self, limiter: NodeLimiter, windows: int) -> list[int]:
        """Return the limit after each of so many windows."""
        return [limiter.observe(self.window(limiter.limit)) for _ in range(windows)]

    def _noisy(self) -> float:
        return self.random.gauss(1.0, self.noise)


def best_limit(itl: Callable[[float], float], slots: int = 1000) -> int:
    """Return the limit with the most tokens per second among those that keep the target."""
    fits = [n for n in range(1, slots + 1) if itl(n) <= TARGET_S]
    return max(fits, key=lambda n: n / itl(n))


def turns(limits: list[int]) -> int:
    """Return how often the limit turned from rising to falling or back."""
    steps = [b - a for a, b in pairwise(limits) if a != b]
    return sum((a > 0) != (b > 0) for a, b in pairwise(steps))
