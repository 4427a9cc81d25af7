"""What does a time budget change at the engine, and what does a wrong prediction not change?

M10 and M11 of `algorithms.md` §4, in virtual time.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import mean

import pytest

from headway.core.predictor import StepCoefficients
from headway.core.step import TierLimits
from headway.core.tier import LatencyTarget
from tests.core.windows import Rise
from tests.engine.drive import Drive, Machine

MACHINE = StepCoefficients(base_s=0.01, token_s=1e-4, decode_context_s=1e-7, prefill_work_s=1e-8)
FLOORS = (0.0, 0.15, 0.05)
BUDGET = 512
QUANTUM = 0.05 * BUDGET
SLOTS, LENGTH, LARGEST = 8, 10, 80
MOST_APART = 2 * SLOTS * LARGEST
"""G3, with as many requests under way as slots, of the largest cost; lengths are known in advance.

When a tenant was last admitted its service and what is reserved for it were no more than the
other's. So it was ahead in service by at most what was reserved for the other, and comes to be by
at most what all that was under way then costs: as many as slots. Either tenant may be.
"""


def scaled(factor: float) -> StepCoefficients:
    """Return a prediction that is wrong by this factor."""
    return StepCoefficients(
        base_s=MACHINE.base_s * factor,
        token_s=MACHINE.token_s * factor,
        decode_context_s=MACHINE.decode_context_s * factor,
        prefill_work_s=MACHINE.prefill_work_s * factor,
    )


WRONG = [
    Machine(MACHINE, scaled(factor), learns)
    for factor in (0.1, 0.7, 1.0, 1.3, 10.0)
    for learns in (True, False)
]


def tiers(tpot_s: float) -> tuple[TierLimits, ...]:
    """Critical with a target, normal with a looser one, bulk without."""
    return (
        TierLimits(target=LatencyTarget(tpot_s=tpot_s, gap_s=4 * tpot_s), preemptible=False),
        TierLimits(floor=FLOORS[1], target=LatencyTarget(tpot_s=4 * tpot_s)),
        TierLimits(floor=FLOORS[2]),
    )


def beside_a_stream(tpot_s: float) -> tuple[float, float, float]:
    """Return how late a critical stream ever was, the mean step and the mean chunk beside it."""
    drive = Drive(tiers(tpot_s), budget=BUDGET, machine=Machine(MACHINE, MACHINE))
    stream = drive.add(0, 20, 300).sequence_id
    for _ in range(60):
        drive.add(2, 1500, 2)
    chunks = []
    for _ in range(120):
        step = drive.step()
        chunks += [s.end - s.start for s in step.slices if s.end - s.start > 1]
    times = [at for at, name in drive.emitted if name == stream]
    late_s = max(at - times[0] - number * tpot_s for number, at in enumerate(times))
    return late_s, drive.now / 120, mean(chunks)


def test_m10_a_tighter_target_makes_steps_and_chunks_smaller() -> None:
    """And the stream keeps it: no token comes after it was due."""
    late, lengths, chunks = zip(*map(beside_a_stream, (0.06, 0.05, 0.04, 0.03, 0.02)), strict=True)
    assert max(late) <= 1e-9
    assert all(tighter <= looser for looser, tighter in pairwise(lengths))
    assert all(tighter <= looser for looser, tighter in pairwise(chunks))
    assert chunks[-1] < chunks[0] / 2


def most_owed(*, critical_prompts: bool) -> list[float]:
    """Return by rank the most that was owed in any window of steps that time keeps short."""
    first = TierLimits(recent_s=0.03)
    machine = Machine(MACHINE, MACHINE)
    drive = Drive((first, *tiers(0.05)[1:]), budget=BUDGET, machine=machine)
    for _ in range(40):
        drive.add(0, 20, 4000)
    debts = [Rise() for _ in FLOORS]
    for _ in range(400):
        drive.keep_waiting(1, 200, 5)
        drive.keep_waiting(2, 200, 5)
        if critical_prompts:
            drive.keep_waiting(0, 400, 2)
        drive.step()
        served = drive.service[-1]
        assert sum(served) <= BUDGET / 2
        for rank, debt in enumerate(debts):
            debt.add(FLOORS[rank] * sum(served) - served[rank])
    return [debt.most for debt in debts]


def most_owed_allowed(rank: int) -> float:
    """Return the bound of G1 on a ledger that acts on a quantum, with steps of so many tokens."""
    return QUANTUM + 2 * FLOORS[rank] * BUDGET + 2


def test_g1_a_floor_that_waits_for_critical_prompts_is_kept_in_every_window() -> None:
    """It is paid late, within the bound that full steps would need; at once beside decodes."""
    late, at_once = most_owed(critical_prompts=True), most_owed(critical_prompts=False)
    assert at_once[1] < late[1]
    for rank in (1, 2):
        assert late[rank] <= most_owed_allowed(rank)


def most_owed_with(prediction: Machine, floors: Sequence[float]) -> dict[int, float]:
    """Return by rank the most that was owed in any window, with prompts of all tiers waiting."""
    first, *others = tiers(0.05)
    floored = [replace(tier, floor=floor) for tier, floor in zip(others, floors, strict=True)]
    drive = Drive((first, *floored), budget=BUDGET, machine=prediction)
    owed = {rank: Rise() for rank in (1, 2)}
    for _ in range(250):
        drive.keep_waiting(0, 400, 3)
        drive.keep_waiting(1, 200, 5)
        drive.keep_waiting(2, 200, 5)
        drive.step()
        served = drive.service[-1]
        for rank, debt in owed.items():
            debt.add(FLOORS[rank] * sum(served) - served[rank])
    return {rank: debt.most for rank, debt in owed.items()}


def most_apart_with(prediction: Machine, *, fcfs: bool = False) -> float:
    """Return how far two tenants of bulk were apart in any window; one has much larger requests.

    A critical request comes now and then, and is in the plan that follows (G2). Service counts as
    it is given; the run ends once four times the bound was given.
    """
    drive = Drive(tiers(0.05), budget=BUDGET, machine=prediction, slots=SLOTS, fcfs=fcfs)
    apart = Rise()
    for number in range(3000):
        for tenant, size in (("a", LARGEST - 2 * LENGTH), ("b", 10)):
            drive.keep_waiting(2, size, LENGTH, tenant, most=SLOTS)
        arrival = drive.add(0, 60, 5) if number % 5 == 0 else None
        before = drive.by_tenant.copy()
        step = drive.step()
        if arrival is not None:
            planned = {each.sequence_id for each in step.slices}
            reason = step.plan.waits.get(arrival.sequence_id)
            assert arrival.sequence_id in planned, f"G2: {reason}"
        gained = {tenant: drive.by_tenant[tenant] - before[tenant] for tenant in "ab"}
        apart.add(gained["a"] - gained["b"])
        if drive.by_tenant["a"] + drive.by_tenant["b"] > 4 * MOST_APART:
            return apart.widest
    raise AssertionError("bulk is hardly served")


@pytest.mark.parametrize("prediction", WRONG)
def test_m11_a_wrong_prediction_breaks_no_guarantee(prediction: Machine) -> None:
    """G1 and G3 in every window, G2 for each arrival, however wrong; B1 and B2 as without."""
    for rank, most in most_owed_with(prediction, FLOORS[1:]).items():
        assert most <= most_owed_allowed(rank), "G1"
    assert most_apart_with(prediction) <= MOST_APART, "G3"


@pytest.mark.parametrize("prediction", WRONG)
def test_m11_control_without_floors_or_tenants_each_bound_breaks(prediction: Machine) -> None:
    for rank, most in most_owed_with(prediction, (0.0, 0.0)).items():
        assert most > most_owed_allowed(rank)
    assert most_apart_with(prediction, fcfs=True) > MOST_APART
