"""Do floors, tenants' shares and critical's wait hold at the engine, in virtual time?

G1, G2, G3, B7, I6, M1, M9. The model of the machine has no noise, so what is claimed is exact. Each
claim has a control: the same check with the policy off, which must fail.
"""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.predictor import StepCoefficients
from headway.core.request import RequestState
from headway.core.step import TierLimits
from headway.engine.sequence import Sequence
from tests.core.windows import Rise
from tests.engine.drive import BUDGET, Drive, Machine

MODEL = StepCoefficients(
    base_s=0.0149, token_s=8.1e-5, decode_s=1.4e-5, decode_context_s=1.1e-7, prefill_work_s=1e-8
)
"""About a Llama-3-8B on an A100 (`algorithms.md` §1.3)."""
MACHINE = Machine(MODEL)
FLOORS = (0.15, 0.05)


def tiers(floors: tuple[float, float] = FLOORS) -> tuple[TierLimits, ...]:
    """Critical, normal and bulk."""
    return TierLimits(preemptible=False), *(TierLimits(floor=floor) for floor in floors)


# -- G1, B7 -------------------------------------------------------------------------------------


def finished_beside_endless_critical(floors: tuple[float, float], slots: int) -> int:
    """Return how many of 6 bulk requests end in 900 steps with critical always waiting."""
    drive = Drive(tiers(floors), slots=slots, machine=MACHINE)
    bulk = [drive.add(2, 40, 12) for _ in range(6)]
    for _ in range(900):
        drive.keep_waiting(0, 50, 10)
        drive.step()
    return sum(sequence.state is RequestState.FINISHED for sequence in bulk)


def test_b7_with_a_floor_all_bulk_ends_though_critical_never_stops() -> None:
    """Slots are short, too: an overdue floor takes its turn."""
    assert finished_beside_endless_critical(FLOORS, slots=64) == 6
    assert finished_beside_endless_critical(FLOORS, slots=4) == 6


def finishes_where_blocks_are_short(
    most: int, max_preemptions: int, watermark_blocks: int, floors: tuple[float, float] = FLOORS
) -> bool:
    """Whether a long bulk request ends in 400 steps; of endless critical ones `most` wait."""
    drive = Drive(
        tiers(floors),
        num_blocks=10,
        slots=16,
        max_preemptions=max_preemptions,
    )
    limits = drive.scheduler.limits
    drive.scheduler.limits = replace(limits, watermark_blocks=watermark_blocks)
    bulk = drive.add(2, 70, 8)
    for number in range(400):
        drive.keep_waiting(0, 5, 7 + number % 5, most=most)
        drive.step()
        if bulk.state is RequestState.FINISHED:
            return True
    return False


@pytest.mark.parametrize("most", [1, 8])
@pytest.mark.parametrize("max_preemptions", [1, 2, 3])
@pytest.mark.parametrize("watermark_blocks", [0, 4])
def test_b7_who_was_preempted_ends_where_blocks_are_short(
    most: int, max_preemptions: int, watermark_blocks: int
) -> None:
    """What its next admission has to leave to others is kept free for it, too."""
    assert finishes_where_blocks_are_short(most, max_preemptions, watermark_blocks)


def test_b7_control_without_floors_who_was_preempted_starves() -> None:
    assert not finishes_where_blocks_are_short(8, 3, 0, (0.0, 0.0))


def test_b7_control_without_floors_bulk_starves() -> None:
    assert finished_beside_endless_critical((0.0, 0.0), slots=4) == 0


# -- G2, I6, M1, M9 -----------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 200), st.integers(1, 40)),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 12),
    st.integers(1, 150),
    st.integers(1, 6),
)
def test_g2_a_critical_request_is_in_the_first_plan_after_its_arrival(
    flood: list[tuple[int, int, int]], steps: int, size: int, slots: int
) -> None:
    """Whatever runs and waits in the lower tiers, full slots and blocks included."""
    drive = Drive(tiers((0.0, 0.0)), num_blocks=24, slots=slots)
    for rank, prompt, length in flood:
        drive.add(rank, prompt, length)
    for _ in range(steps):
        if drive.scheduler.has_unfinished:
            drive.step()
    critical = drive.add(0, size, 5)
    planned = {each.sequence_id for each in drive.step().slices}
    assert critical.sequence_id in planned


CRITICAL = [(0.05 + 0.31 * n, 20 + 37 * n % 180, 3 + n % 9) for n in range(40)]
"""Arrival, prompt and answer of critical requests that come well apart."""


class Served:
    """What 40 critical requests met, beside `num_bulk` bulk requests that wait from the start."""

    def __init__(self, num_bulk: int, floors: tuple[float, float] = FLOORS) -> None:
        drive = Drive(tiers(floors), slots=16, machine=MACHINE)
        for _ in range(num_bulk):
            drive.add(2, 300, 30, tenant="bulk")
        upcoming, self.num_steps = list(CRITICAL), Counter[str]()
        arrived: dict[str, Sequence] = {}
        self.longest_s = 0.0
        while upcoming or any(not s.num_output_tokens for s in arrived.values()):
            if not drive.scheduler.has_unfinished:
                drive.now = max(drive.now, upcoming[0][0])
            while upcoming and upcoming[0][0] <= drive.now:
                at, size, length = upcoming.pop(0)
                sequence = drive.add(0, size, length)
                arrived[sequence.sequence_id] = sequence
                sequence.arrived_s = at
            self.num_steps.update(i for i, s in arrived.items() if not s.num_output_tokens)
            before = drive.now
            drive.step()
            self.longest_s = max(self.longest_s, drive.now - before)
        first = {name: at for at, name in reversed(drive.emitted)}
        self.ttft_s = [first[name] - s.arrived_s for name, s in arrived.items()]
        self.steps_to_first = [self.num_steps[name] for name in arrived]
        times = [[at for at, name in drive.emitted if name == one] for one in arrived]
        self.longest_gap_s = max(b - a for own in times for a, b in pairwise(own))
        self.bulk_per_s = drive.by_tenant["bulk"] / drive.now


def test_m1_bulk_adds_one_iteration_and_the_floors_however_much_there_is() -> None:
    """TTFT <= (steps alone / (1 - 2 * floors) + 1 under way) * the longest step."""
    alone, flooded, twice = Served(0), Served(200), Served(400)
    assert flooded.ttft_s == twice.ttft_s, "the length of the flood shows"
    assert flooded.bulk_per_s > 0
    most = [steps / (1 - 2 * sum(FLOORS)) + 1 for steps in alone.steps_to_first]
    assert all(
        with_bulk <= steps * flooded.longest_s
        for with_bulk, steps in zip(flooded.ttft_s, most, strict=True)
    )
    full_step = MODEL.base_s + BUDGET * (MODEL.token_s + MODEL.decode_s) + 0.005
    assert flooded.longest_s <= full_step


def test_m1_control_first_come_first_served_shows_the_flood() -> None:
    drive = Drive((TierLimits(),), slots=16, machine=MACHINE, fcfs=True)
    for _ in range(200):
        drive.add(0, 300, 30)
    critical = drive.add(0, 20, 3)
    while not critical.num_output_tokens:
        drive.step()
    flooded = Served(200)
    assert drive.now > 20 * max(flooded.ttft_s)


def test_i6_a_critical_stream_gets_its_token_in_every_step() -> None:
    """The longest gap is the longest step: no step leaves out a critical decode."""
    flooded = Served(200)
    assert flooded.longest_gap_s <= flooded.longest_s + 1e-9


def bulk_served(num_critical: int) -> int:
    """Return bulk's service after 20 s beside so many critical requests."""
    drive = Drive(tiers(), slots=16, machine=MACHINE)
    for _ in range(400):
        drive.add(2, 300, 30, tenant="bulk")
    arrivals = [20.0 * n / num_critical for n in range(num_critical)]
    while drive.now < 20.0:
        while arrivals and arrivals[0] <= drive.now:
            arrivals.pop(0)
            drive.add(0, 90, 9)
        drive.step()
    return drive.by_tenant["bulk"]


def test_m9_less_critical_load_never_leaves_bulk_less() -> None:
    """Within one request: 300 prompt tokens and 30 answered."""
    served = [bulk_served(num_critical) for num_critical in (60, 30, 15, 8)]
    assert all(more >= less - 360 for less, more in pairwise(served))
    assert served[-1] > served[0]


# -- G3 -----------------------------------------------------------------------------------------

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}


def served_by_weight(*, fcfs: bool) -> tuple[dict[str, float], float]:
    """Return each tenant's share over its due share, and the widest window of difference.

    Tenant a sends long prompts, d short ones, so that counting requests would not do.
    """
    drive = Drive((TierLimits(), TierLimits()), slots=8, machine=MACHINE, fcfs=fcfs)
    sizes = {"a": 120, "b": 60, "c": 30, "d": 10}
    apart = {pair: Rise() for pair in ("ab", "bc", "cd", "ad")}
    for _ in range(1500):
        waiting = Counter(
            s.request.tenant for s in drive.sequences.values() if s.state is RequestState.WAITING
        )
        for tenant, size in sizes.items():
            for _ in range(4 - waiting[tenant]):
                drive.add(1, size, 10, tenant, weight=WEIGHTS[tenant])
        before = Counter(drive.by_tenant)
        drive.step()
        gained = {t: (drive.by_tenant[t] - before[t]) / WEIGHTS[t] for t in sizes}
        for pair, difference in apart.items():
            difference.add(gained[pair[0]] - gained[pair[1]])
        for name in [n for n, s in drive.sequences.items() if s.state is RequestState.FINISHED]:
            del drive.sequences[name]
    total, weights = drive.by_tenant.total(), sum(WEIGHTS.values())
    shares = {t: drive.by_tenant[t] / total / (w / weights) for t, w in WEIGHTS.items()}
    return shares, max(difference.widest for difference in apart.values())


def test_g3_weights_of_one_to_four_are_followed_in_work() -> None:
    """Within 3 %, and every window within 2 * (slots + 1) requests of the largest, by weight."""
    shares, widest = served_by_weight(fcfs=False)
    assert all(abs(share - 1) <= 0.03 for share in shares.values()), shares
    assert widest <= 2 * 9 * (120 + 20) / min(WEIGHTS.values())


def test_g3_control_first_come_first_served_follows_the_size_of_requests() -> None:
    shares, widest = served_by_weight(fcfs=True)
    assert any(abs(share - 1) > 0.5 for share in shares.values()), shares
    assert widest > 2 * 9 * (120 + 20) / min(WEIGHTS.values())
