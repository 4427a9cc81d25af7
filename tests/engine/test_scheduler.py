"""Are the books kept right: shares, seniority, counts?"""

from collections import Counter

import pytest

from headway.core.predictor import StepCoefficients
from headway.core.preemption import MAX_REST_S, REST_S
from headway.core.request import RequestState
from headway.core.step import TierLimits
from headway.core.tier_books import FLOOR_QUANTUM
from headway.engine.request import FinishReason
from headway.engine.runner import StepResult
from headway.engine.sequence import Sequence
from tests.core.windows import Rise
from tests.engine.drive import BUDGET, Drive, Machine

WHOLE_PROMPTS = Machine(StepCoefficients(0.0), chunks=False)


def test_g1_each_floor_is_kept_in_every_window() -> None:
    """G1: s >= floor * S - U over all windows, U = quantum + one step's worth."""
    floors = (0.0, 0.15, 0.05)
    drive = Drive(tuple(TierLimits(floor=floor) for floor in floors))
    for _ in range(600):
        for rank in range(3):
            drive.keep_waiting(rank, 40, 6)
        drive.step()
    for rank in (1, 2):
        bound = FLOOR_QUANTUM * BUDGET + 2 * BUDGET * floors[rank] + 2
        debt = worst = 0.0
        for served in drive.service:
            debt = max(0.0, debt + floors[rank] * sum(served) - served[rank])
            worst = max(worst, debt)
        assert worst <= bound
    without = Drive((TierLimits(), TierLimits()))
    for _ in range(100):
        for rank in range(2):
            without.keep_waiting(rank, 64, 1)
        without.step()
    assert sum(served[1] for served in without.service) == 0


@pytest.mark.parametrize("floors", [(0.0, 0.15, 0.05), (0.0, 0.3, 0.2), (0.0, 0.6, 0.3)])
@pytest.mark.parametrize("sizes", [(100, 100, 100), (250, 250, 250), (200, 200, 40)])
def test_g1_without_chunking_a_floor_saves_up_for_whole_prompts(
    floors: tuple[float, ...], sizes: tuple[int, ...]
) -> None:
    """G1 with the prompt that it saves up for: U = q + c + 2 * rho_max * s."""
    budget = 256
    tiers = tuple(TierLimits(floor=floor) for floor in floors)
    drive = Drive(tiers, budget=budget, machine=WHOLE_PROMPTS)
    for _ in range(1500):
        for rank in range(3):
            drive.keep_waiting(rank, sizes[rank], 8)
        drive.step()
    largest = max(map(sum, drive.service))
    for rank in (1, 2):
        bound = FLOOR_QUANTUM * budget + sizes[rank] + 2 * max(floors) * largest + 2
        debt = Rise()
        for served in drive.service:
            debt.add(floors[rank] * sum(served) - served[rank])
        assert debt.most <= bound
    without = Drive((TierLimits(), TierLimits()), budget=budget, machine=WHOLE_PROMPTS)
    for _ in range(100):
        for rank in range(2):
            without.keep_waiting(rank, 250, 1)
        without.step()
    assert sum(served[1] for served in without.service) == 0


def test_g3_tenants_share_by_weight_in_work_not_in_requests() -> None:
    """G3: one sends long prompts, one short ones, one has twice the weight."""
    drive = Drive((TierLimits(), TierLimits()), slots=8)
    for _ in range(1500):
        drive.keep_waiting(1, 120, 10, "long")
        drive.keep_waiting(1, 10, 10, "short")
        while sum(s.request.tenant == "heavy" for s in drive.sequences.values()) < 12:
            drive.add(1, 60, 10, "heavy", weight=2.0)
        drive.step()
    shares = {
        tenant: served / drive.by_tenant.total() for tenant, served in drive.by_tenant.items()
    }
    assert abs(shares["long"] - 0.25) < 0.03
    assert abs(shares["short"] - 0.25) < 0.03
    assert abs(shares["heavy"] - 0.5) < 0.03


def test_g3_one_tenants_burst_is_not_admitted_whole() -> None:
    """Two tenants of one tier that arrive together are admitted in turns."""
    drive = Drive((TierLimits(), TierLimits()), slots=4)
    for _ in range(6):
        drive.add(1, 8, 4, "first")
    for _ in range(6):
        drive.add(1, 8, 4, "second")
    step = drive.step()
    tenants = Counter(drive.sequences[s.sequence_id].request.tenant for s in step.slices)
    assert tenants == {"first": 2, "second": 2}


def test_g4_preemptions_are_bounded_and_seniority_stays() -> None:
    """A bulk request that critical ones push out again and again is left alone in the end."""
    tiers = (TierLimits(preemptible=False), TierLimits())
    drive = Drive(tiers, num_blocks=12, slots=1, machine=Machine(StepCoefficients(MAX_REST_S)))
    bulk = drive.add(1, 100, 60)
    drive.add(1, 20, 2)
    for _ in range(5):
        drive.step()
        drive.add(0, 10, 2)
        while any(s.rank == 0 and s.state is not RequestState.FINISHED for s in all_of(drive)):
            drive.step()
    assert bulk.preemptions == 3
    while bulk.state is not RequestState.FINISHED:
        drive.step()
    assert bulk.finish_reason is FinishReason.LENGTH
    assert all_of(drive)[1].state is not RequestState.FINISHED


def test_g4_a_preempted_request_rests_and_others_may_pass() -> None:
    """It is admitted again when its rest is over, and at once where there is nothing else to do."""
    tiers = (TierLimits(preemptible=False), TierLimits(), TierLimits())
    drive = Drive(tiers, slots=1, machine=Machine(StepCoefficients(REST_S / 8)))
    bulk = drive.add(2, 20, 30)
    drive.step()
    drive.add(0, 10, 2)
    drive.step()
    drive.add(2, 10, 2)
    preempted_at = drive.now
    while bulk.state is RequestState.PREEMPTED:
        drive.step()
        if drive.now < preempted_at + 0.5 * REST_S:
            drive.add(2, 10, 1)
    assert bulk.preemptions == 1
    assert drive.now - preempted_at >= REST_S * 0.8
    alone = Drive(tiers, slots=1)
    bulk = alone.add(2, 20, 30)
    alone.step()
    alone.add(0, 10, 1)
    alone.step()
    alone.step()
    assert bulk.state is RequestState.RUNNING


def test_who_was_admitted_is_overtaken_anew() -> None:
    """Others may pass again after a preemption: that they passed before is over."""
    drive = Drive((TierLimits(preemptible=False), TierLimits(), TierLimits()), num_blocks=12)
    holder = drive.add(1, 60, 3)
    drive.step()
    large = drive.add(1, 150, 5)
    for _ in range(2):
        drive.add(2, 8, 1)
        drive.step()
    assert large.overtaken > 0
    while large.state is RequestState.WAITING:
        drive.step()
    assert holder.state is RequestState.FINISHED
    assert large.overtaken == 0


def all_of(drive: Drive) -> list[Sequence]:
    """Return what was added."""
    return list(drive.sequences.values())


def test_a_failed_sequence_leaves_and_is_not_found_in_the_cache() -> None:
    """What it computed in the step that failed is not offered to others."""
    drive = Drive((TierLimits(), TierLimits()), caching=True)
    bad = drive.add(1, 40, 5)
    step = drive.scheduler.schedule(0.0)
    assert step is not None
    advances = drive.scheduler.update(step, StepResult(failed={bad.sequence_id: "nan"}))
    assert [(a.sequence, a.token, a.error) for a in advances] == [(bad, None, "nan")]
    assert bad.finish_reason is FinishReason.ERROR
    assert drive.kv.num_free == drive.kv.num_blocks
    assert not drive.scheduler.has_unfinished


def test_gauges_are_true_at_once_after_aborting_all() -> None:
    """I3: 50 running, 20 queued, all aborted together."""
    drive = Drive((TierLimits(), TierLimits()), slots=50)
    for _ in range(70):
        drive.add(1, 1, 50)
    drive.step()
    before = drive.scheduler.stats()
    assert (before.num_running, before.num_waiting) == ((0, 50), (0, 20))
    for sequence in all_of(drive):
        drive.scheduler.abort(sequence.request.request_id)
    after = drive.scheduler.stats()
    assert (after.num_running, after.num_waiting) == ((0, 0), (0, 0))
    assert after.num_held_blocks == 0
    assert after.num_finished == {"abort": 70}
    assert before.num_finished == {}
    assert after.num_generation_tokens == before.num_generation_tokens == 50
