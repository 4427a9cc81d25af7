"""What has the scheduler done, in numbers that vLLM can carry?

vLLM's engine and its API server are two processes. Between them travel vLLM's own statistics, in
which one mapping of names to integers is free: times are whole microseconds here, shares are
thousandths. Counts are what was added since the latest report, gauges are as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.core.tier import Tiers

PREFIX = "headway:"
MICRO, MILLI = 1e-6, 1e-3


@dataclass(frozen=True, slots=True)
class Metric:
    """One number by tier, or one for the engine."""

    name: str
    help: str
    by_tier: bool = True
    is_gauge: bool = False
    unit: float = 1.0
    """What one of the integers is worth."""


METRICS = (
    Metric("max_num_seqs", "Most requests that run at once.", by_tier=False, is_gauge=True),
    Metric("num_requests_running", "Requests that hold blocks.", is_gauge=True),
    Metric("num_requests_waiting", "Requests that wait.", is_gauge=True),
    Metric("admissions", "Requests that were given blocks for the first time."),
    Metric("queue_seconds", "Seconds that those waited before.", unit=MICRO),
    Metric("preemptions", "Times that a request lost its blocks to another one."),
    Metric("refused", "Times that vLLM did nothing for a request although the plan did."),
    Metric("parked_turns", "Steps that a running request sat out with its blocks kept."),
    Metric("batched_tokens", "Tokens computed."),
    Metric("recomputed_tokens", "Tokens of them that were computed before a preemption already."),
    Metric("steps", "Steps.", by_tier=False),
    Metric("step_seconds", "Seconds that steps took.", by_tier=False, unit=MICRO),
    Metric("predicted_step_seconds", "Seconds predicted for them.", by_tier=False, unit=MICRO),
    Metric("late_steps", "Steps longer than predicted with the margin.", by_tier=False),
    Metric("planning_seconds", "Seconds spent planning.", by_tier=False, unit=MICRO),
    Metric(
        "step_budget_seconds",
        "What the latest step was allowed to take; 0: no target bounded it.",
        by_tier=False,
        is_gauge=True,
        unit=MICRO,
    ),
    Metric("safety_factor", "Margin on predicted times.", by_tier=False, is_gauge=True, unit=MILLI),
)
_UNITS = {metric.name: metric.unit for metric in METRICS}


class Counters:
    """Numbers by metric and tier, whole in the metric's unit."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tuple(tier.name for tier in tiers.all)
        self._values: dict[tuple[str, str], int] = {}

    def add(self, name: str, value: float = 1, rank: int | None = None) -> None:
        """Count `value`, in the metric's own unit (seconds, requests)."""
        key = name, "" if rank is None else self._tiers[rank]
        self._values[key] = self._values.get(key, 0) + round(value / _UNITS[name])

    def set(self, name: str, value: float, rank: int | None = None) -> None:
        """Set a gauge."""
        key = name, "" if rank is None else self._tiers[rank]
        self._values[key] = round(value / _UNITS[name])

    def take(self) -> dict[str, int]:
        """Return all that changed, by wire name, and count from 0 again."""
        taken = {f"{PREFIX}{name}:{tier}": value for (name, tier), value in self._values.items()}
        self._values.clear()
        return taken


def decode(carried: Mapping[str, int]) -> Iterable[tuple[Metric, str, float]]:
    """Yield (metric, tier or "", value in the metric's unit) of what `Counters.take` returned.

    What is not ours is skipped.
    """
    by_name = {metric.name: metric for metric in METRICS}
    for key, value in carried.items():
        if key.startswith(PREFIX):
            name, _, tier = key.removeprefix(PREFIX).partition(":")
            if name in by_name:
                yield by_name[name], tier, value * by_name[name].unit
