"""How long does a step of vLLM take to plan, ours beside vLLM's own?

Run in vLLM's environment:

    HEADWAY_TEST_MODEL=MODEL_FOLDER .venv-vllm-0.32.0/bin/python -m bench.vllm_plan

256 requests run, 10,000 wait. Figures are CPU times of `schedule()`, p50 and p99, in milliseconds;
the plan is the part of ours before vLLM's own begins.
"""

import os
import statistics
import time
from typing import Any

from tests_vllm.engine import BULK, CRITICAL, NORMAL, Engine
from vllm.v1.core.sched.scheduler import Scheduler

from headway.vllm_plugin import QoSScheduler

NUM_RUNNING, NUM_WAITING, NUM_STEPS = 256, 10_000, 400


class Timed(QoSScheduler):
    """Ours, noting how long planning takes."""

    plans_s: list[float]

    def _plan(self, now: float) -> Any:
        start = time.thread_time()
        plan = super()._plan(now)
        self.plans_s.append(time.thread_time() - start)
        return plan


def measure(model: str, cls: type[Scheduler], *, every: int) -> Any:
    """Return the seconds of each `schedule()`; a critical request arrives each `every` steps."""
    engine = Engine(
        model,
        cls=cls,
        max_num_seqs=NUM_RUNNING,
        max_num_batched_tokens=2048,
        num_blocks=40_000,
    )
    if isinstance(engine.scheduler, Timed):
        engine.scheduler.plans_s = []
    for index in range(NUM_RUNNING + NUM_WAITING):
        engine.add(
            f"b{index}",
            BULK if index % 4 else NORMAL,
            prompt=32,
            max_tokens=900,
            tenant=f"tenant{index % 50}",
        )
    while len(engine.running) < NUM_RUNNING - 32:
        engine.step()
    times: list[float] = []
    for step in range(NUM_STEPS):
        if step % every == 0:
            engine.add(f"c{step}", CRITICAL, prompt=64, max_tokens=32)
        start = time.thread_time()
        engine.step(lambda _, start=start: times.append(time.thread_time() - start))
    return times, engine


def show(name: str, times: list[float]) -> None:
    """Print p50 and p99."""
    cuts = statistics.quantiles(times, n=100)
    print(f"{name:24s} p50 {1e3 * cuts[49]:6.2f} ms   p99 {1e3 * cuts[98]:6.2f} ms")  # noqa: T201 - the report


if __name__ == "__main__":
    folder = os.environ["HEADWAY_TEST_MODEL"]
    show("vLLM, priority", measure(folder, Scheduler, every=20)[0])
    taken, engine = measure(folder, Timed, every=20)
    show("headway in vLLM", taken)
    show("  of it the plan", engine.scheduler.plans_s[-NUM_STEPS:])
