"""Does a step of the engine take longer to plan because more requests wait? (I12, in lines run.)"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from headway.core.batching import plan_step
from headway.core.predictor import StepCoefficients
from headway.core.step import TierLimits
from headway.core.tier import LatencyTarget
from headway.engine.scheduler import ScheduledStep
from tests.engine.drive import Drive, Machine
from tests.lines import lines_run

COST = StepCoefficients(0.01, token_s=1e-4)
TIERS = (
    TierLimits(target=LatencyTarget(tpot_s=0.05), reserved_slots=2, preemptible=False),
    TierLimits(floor=0.15, target=LatencyTarget(tpot_s=0.1)),
    TierLimits(floor=0.05),
)
SMALL, LARGE = 500, 2000
MOST_GROWTH = 1.2
"""I12: four times the queue changes what a plan takes by less than a fifth."""
STEPS = 40


def queued(num_waiting: int, situation: str) -> Drive:
    """Return a scheduler with so many waiting, in all tiers and of sixteen tenants."""
    full = situation == "blocks are short"
    drive = Drive(
        TIERS,
        num_blocks=160 if full else 4096,
        slots=24,
        budget=256,
        machine=Machine(COST, COST, chunks=situation != "whole prompts"),
    )
    for number in range(num_waiting):
        rank = 2 if situation == "one tier" else number % 3
        size = 20 + 61 * number % 200
        drive.add(rank, size, 30 if full else 8, f"t{number % 16}")
    return drive


SITUATIONS = ("all tiers", "one tier", "blocks are short", "whole prompts")


def lines_of_steps(num_waiting: int, situation: str) -> dict[str, list[int]]:
    """Return how many lines each of some steps took, by what was done."""
    drive = queued(num_waiting, situation)
    scheduler = drive.scheduler
    steps: list[ScheduledStep] = []

    def plan() -> None:
        plan_step(scheduler.step_input(drive.now), scheduler.limits)

    def schedule() -> None:
        step = scheduler.schedule(drive.now)
        assert step is not None
        steps.append(step)

    def carry_out() -> None:
        drive.carry_out(steps[-1])

    lines: dict[str, list[int]] = {}
    for number in range(STEPS):
        actions: dict[str, Callable[[], object]] = {
            "plan": plan,
            "schedule": schedule,
            "carry out": carry_out,
            "arrive": partial(drive.add, number % 3, 50, 8, f"t{number % 16}"),
            "leave": partial(scheduler.abort, f"r{num_waiting - 1 - number}"),
        }
        for name, action in actions.items():
            lines.setdefault(name, []).append(lines_run(action))
    return lines


@pytest.mark.parametrize("situation", SITUATIONS)
def test_i12_four_times_the_queue_makes_no_step_longer(situation: str) -> None:
    small, large = (lines_of_steps(size, situation) for size in (SMALL, LARGE))
    for name, lines in large.items():
        assert sum(lines) < MOST_GROWTH * sum(small[name]), name
        assert max(lines) < MOST_GROWTH * max(small[name]), name


def test_i12_control_looking_past_all_that_does_not_fit_is_noticed() -> None:
    counts = []
    for size in (SMALL, LARGE):
        drive = queued(size, "blocks are short")
        for _ in range(8):
            drive.step()
        limits = replace(drive.scheduler.limits, lookahead=LARGE, max_overtakes=LARGE)
        counts.append(lines_run(partial(plan_step, drive.scheduler.step_input(drive.now), limits)))
    assert counts[1] > 2 * counts[0]
