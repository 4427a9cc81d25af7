"""What does a time budget change at the engine, and what does a wrong prediction not change?

M10 and M11 of `algorithms.md` §4, in virtual time.
"""

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


def scaled(factor: float) -> StepCoefficients:
    """Return a prediction that is wrong by this factor."""
    return StepCoefficients(
        base_s=MACHINE.base_s * factor,
        token_s=MACHINE.token_s * factor,
        decode_context_s=MACHINE.decode_context_s * factor,
        prefill_work_s=MACHINE.prefill_work_s * factor,
    )


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


def test_g1_a_floor_that_waits_for_critical_prompts_is_kept_in_every_window() -> None:
    """It is paid late, within the bound that full steps would need; at once beside decodes."""
    late, at_once = most_owed(critical_prompts=True), most_owed(critical_prompts=False)
    assert at_once[1] < late[1]
    for rank in (1, 2):
        assert late[rank] <= QUANTUM + 2 * FLOORS[rank] * BUDGET + 2


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("factor", [0.1, 0.7, 1.0, 1.3, 10.0])
def test_m11_a_wrong_prediction_breaks_no_guarantee(factor: float, learns: bool) -> None:
    """G1 and G3 in every window, G2 for each arrival, however wrong; B1 and B2 as without."""
    drive = Drive(
        tiers(0.05),
        budget=BUDGET,
        machine=Machine(MACHINE, scaled(factor), learns),
    )
    owed = {rank: Rise() for rank in (1, 2)}
    apart = Rise()
    for number in range(250):
        for tenant in "ab":
            drive.keep_waiting(2, 300 if tenant == "a" else 60, 20, tenant)
        drive.keep_waiting(1, 100, 20)
        if number % 5 == 0:
            arrival = drive.add(0, 60, 5)
        before = drive.by_tenant.copy()
        step = drive.step()
        if number % 5 == 0:
            planned = {each.sequence_id for each in step.slices}
            reason = step.plan.waits.get(arrival.sequence_id)
            assert arrival.sequence_id in planned, f"G2: {reason}"
        served = drive.service[-1]
        for rank, debt in owed.items():
            debt.add(FLOORS[rank] * sum(served) - served[rank])
        gained = {tenant: drive.by_tenant[tenant] - before[tenant] for tenant in "ab"}
        apart.add(gained["a"] - gained["b"])
    for rank, debt in owed.items():
        assert debt.most <= QUANTUM + 2 * FLOORS[rank] * BUDGET + 2, "G1"
    assert apart.widest <= 2 * (64 + 1) * (300 + 40), "G3"
