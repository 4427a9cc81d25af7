"""What is the engine doing, in numbers?"""

from dataclasses import dataclass, field, replace
from math import inf


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """Gauges as they stand, counters since the start, by the callers' rank where by rank.

    The engine keeps one and counts in it; everybody else gets a `snapshot`.
    """

    max_num_seqs: int
    num_blocks: int
    block_size: int
    num_running: tuple[int, ...] = ()
    """Sequences that hold blocks, by rank."""
    num_waiting: tuple[int, ...] = ()
    """Sequences that wait, for the first time or after a preemption, by rank."""
    num_passed_over: int = 0
    """Those of them that the latest step left waiting; who came since may have a seat in the next,
    and siblings of a sequence have theirs once its prompt is computed."""
    num_held_blocks: int = 0
    num_cached_blocks: int = 0
    num_free_blocks: int = 0
    num_steps: int = 0
    num_batched_tokens: int = 0
    """Tokens computed, those recomputed after a preemption included."""
    num_preemptions: int = 0
    num_parked: int = 0
    """Turns that residents sat out because the tokens went to others."""
    num_prefix_queries: int = 0
    """Tokens looked up in the prefix cache at admissions."""
    num_prefix_hits: int = 0
    """Tokens found there."""
    num_prompt_tokens: int = 0
    """Prompt tokens of the requests taken, each prompt once."""
    num_generation_tokens: int = 0
    num_finished: dict[str, int] = field(default_factory=dict)
    """Sequences by finish reason."""
    busy_s: float = 0.0
    """Seconds spent in steps."""
    last_step_s: float = 0.0
    last_budget_s: float = inf
    """What the latest step was allowed to take; infinite when nobody's target bounded it."""
    step_s: float = 0.0
    """Seconds that the model took, of steps that were predicted."""
    predicted_s: float = 0.0
    """Seconds predicted for the same steps."""
    num_late_steps: int = 0
    """Those of them that took longer than predicted times the safety factor."""
    safety: float = 1.0
    """The safety factor as it was for the latest step."""

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that requests hold, 0 to 1."""
        return self.num_held_blocks / self.num_blocks

    def count_finished(self, reason: str) -> None:
        """Count the end of one sequence."""
        self.num_finished[reason] = self.num_finished.get(reason, 0) + 1

    def count_decodes(self, num_steps: int, num_sequences: int) -> None:
        """Count steps of one token for each of so many sequences."""
        self.num_steps += num_steps
        self.num_batched_tokens += num_steps * num_sequences
        self.num_generation_tokens += num_steps * num_sequences

    def count_prediction(self, actual_s: float, predicted_s: float, safety: float) -> None:
        """Count a step whose time was predicted."""
        self.step_s += actual_s
        self.predicted_s += predicted_s
        self.num_late_steps += actual_s > safety * predicted_s
        self.safety = safety

    def snapshot(
        self,
        *,
        running: list[int],
        waiting: list[int],
        passed_over: int,
        held: int,
        cached: int,
        free: int,
    ) -> "EngineStats":
        """Return a copy with the gauges given; later counting does not change it."""
        return replace(
            self,
            num_running=tuple(running),
            num_waiting=tuple(waiting),
            num_passed_over=passed_over,
            num_held_blocks=held,
            num_cached_blocks=cached,
            num_free_blocks=free,
            num_finished=dict(self.num_finished),
        )
