"""What did a node do in one window, and is a window over?"""

from dataclasses import dataclass

WINDOW_S, WINDOW_COMPLETIONS, WINDOW_TOKENS = 1.0, 20, 500
QUEUE_TARGET_S = 0.05
"""Longest wait inside a node, from arrival to the first step: there, no tier overtakes another."""

QUEUE_SHARE = 0.02
"""Share of what is in flight that may wait inside at each moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSignals:
    """What one node did in one window. None: not told."""

    duration_s: float
    completions: int = 0
    tokens: int = 0
    """Generated ones."""
    max_inflight: int = 0
    itl_s: float | None = None
    """Mean time between two tokens of a stream, of the most urgent tier there with a target."""
    itl_target_s: float | None = None
    """That tier's target; None: nobody there was promised one."""
    queue_wait_p95_s: float | None = None
    """Inside the node, from arrival to the first step."""
    kv_used: float | None = None
    """Share of the KV blocks that requests hold, 0 to 1."""
    num_preemptions: int | None = None
    failed: bool = False
    """It failed at a request, was silent for too long, or said that it is full."""

    @property
    def throughput(self) -> float:
        """Generated tokens per second."""
        return self.tokens / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def num_waiting_inside(self) -> float:
        """How many waited inside the node at each moment, by Little's law; 0 when not told."""
        if self.queue_wait_p95_s is None or self.duration_s <= 0:
            return 0.0
        return self.queue_wait_p95_s * max(1, self.completions) / self.duration_s

    @property
    def queue_closeness(self) -> float | None:
        """How near what waits inside comes to being a queue; above 1 it is one. None: not told.

        Everybody waits for the step under way, which is long on a slow node, and some always do on
        a large one; so it takes both a wait that is too long and too many who wait at each moment.
        """
        if self.queue_wait_p95_s is None:
            return None
        number = self.num_waiting_inside / max(1.0, QUEUE_SHARE * self.max_inflight)
        return min(self.queue_wait_p95_s / QUEUE_TARGET_S, number)

    @property
    def told(self) -> frozenset[str]:
        """Which of the node's own figures were told."""
        figures = {"queue": self.queue_wait_p95_s, "kv": self.kv_used}
        return frozenset(name for name, value in figures.items() if value is not None)


def window_is_over(duration_s: float, completions: int, tokens: int, *, failed: bool) -> bool:
    """Return whether enough has been seen to judge a node by."""
    enough = completions >= WINDOW_COMPLETIONS or tokens >= WINDOW_TOKENS or failed
    return enough and duration_s >= WINDOW_S
