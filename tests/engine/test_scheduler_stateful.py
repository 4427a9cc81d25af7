"""Does every step of the engine's scheduler keep all promises, whatever happens in between?

Two walks (`books.py`): one where steps take no time, and one where they do and tiers have targets.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf
from typing import ClassVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from headway.core.budget import DEAREST_TOKEN, MIN_PROMPT_TOKENS, MIN_TOKENS
from headway.core.predictor import StepCoefficients, StepFeatures
from headway.core.step import StepInput, TierLimits, Wait
from headway.core.tier import LatencyTarget
from headway.engine.scheduler import ScheduledStep
from tests.engine.books import MAX_PREEMPTIONS, RESERVED_SLOTS, SLOTS, Books
from tests.engine.drive import TIMELESS, Drive, Machine

FLOORS = st.sampled_from([(0.0, 0.0), (0.15, 0.05), (0.3, 0.2)])
WALK = settings(max_examples=80, stateful_step_count=25)


class BooksInTokens(Books):
    """Steps are bounded by tokens alone."""

    @initialize(
        num_blocks=st.integers(4, 20),
        slots=SLOTS,
        budget=st.integers(4, 48),
        caching=st.booleans(),
        floors=FLOORS,
        chunks=st.booleans(),
        max_preemptions=MAX_PREEMPTIONS,
    )
    def build(
        self,
        num_blocks: int,
        slots: int,
        budget: int,
        caching: bool,
        floors: tuple[float, float],
        chunks: bool,
        max_preemptions: int,
    ) -> None:
        tiers = (
            TierLimits(reserved_slots=RESERVED_SLOTS, reserved_blocks=1, preemptible=False),
            *(TierLimits(floor=floor) for floor in floors),
        )
        self.start(
            Drive(
                tiers,
                num_blocks=num_blocks,
                slots=slots,
                caching=caching,
                budget=budget,
                machine=replace(TIMELESS, chunks=chunks),
                max_preemptions=max_preemptions,
            ),
            max_preemptions,
        )


TestBooks = BooksInTokens.TestCase
TestBooks.settings = WALK


# -- in time ------------------------------------------------------------------------------------

ACTUAL = StepCoefficients(base_s=0.01, token_s=5e-4, decode_context_s=1e-5, prefill_work_s=1e-6)
TARGETS = (LatencyTarget(tpot_s=0.03, gap_s=0.08), LatencyTarget(tpot_s=0.1), LatencyTarget())


def scaled(factor: float) -> StepCoefficients:
    """Return a prediction that is wrong by this factor."""
    return StepCoefficients(
        base_s=ACTUAL.base_s * factor,
        token_s=ACTUAL.token_s * factor,
        decode_context_s=ACTUAL.decode_context_s * factor,
        prefill_work_s=ACTUAL.prefill_work_s * factor,
    )


class BooksInTime(Books):
    """Steps are bounded by targets, predicted right or wrong, and now and then begin late."""

    reached: ClassVar[Counter[str]] = Counter()
    """In how many steps what only this walk brings about was seen."""

    @initialize(
        num_blocks=st.integers(4, 40),
        slots=SLOTS,
        budget=st.integers(24, 64),
        floors=FLOORS,
        factor=st.sampled_from([0.1, 0.7, 1.0, 1.3, 10.0]),
        learns=st.booleans(),
        bounds_s=st.sampled_from([(inf, 0.0), (inf, 0.015), (0.02, 0.0), (0.02, 0.015)]),
        max_preemptions=MAX_PREEMPTIONS,
    )
    def build(
        self,
        num_blocks: int,
        slots: int,
        budget: int,
        floors: tuple[float, float],
        factor: float,
        learns: bool,
        bounds_s: tuple[float, float],
        max_preemptions: int,
    ) -> None:
        recent_s, min_step_s = bounds_s
        first = TierLimits(reserved_slots=RESERVED_SLOTS, reserved_blocks=1, preemptible=False)
        tiers = [replace(first, recent_s=recent_s), *(TierLimits(floor=floor) for floor in floors)]
        drive = Drive(
            tuple(replace(each, target=t) for each, t in zip(tiers, TARGETS, strict=True)),
            num_blocks=num_blocks,
            slots=slots,
            budget=budget,
            machine=Machine(ACTUAL, scaled(factor), learns),
            max_preemptions=max_preemptions,
        )
        limits = drive.scheduler.limits
        drive.scheduler.limits = replace(limits, min_step_s=min_step_s, max_overtakes=2)
        self.start(drive, max_preemptions)

    @rule(seconds=st.sampled_from([0.05, 0.5, 5.0]))
    def pass_time(self, seconds: float) -> None:
        """The next step begins late: streams are late, and rests end."""
        self.drive.now += seconds

    def step(self, failing: list[str]) -> tuple[StepInput, ScheduledStep]:
        before, step = super().step(failing)
        self.check_time(before, step)
        check_streams(before, step)
        self.reached.update(seen(before, step, self.drive.scheduler.limits.max_num_batched_tokens))
        return before, step

    def check_time(self, before: StepInput, step: ScheduledStep) -> None:
        """I7: a step fits into its time but for what time does not bound: decodes of rank 0, the
        first tokens of its prompts, those of a floor that is owed, and the least of a step."""
        assert before.cost is not None
        limits = self.drive.scheduler.limits
        tiers, most = limits.tiers, limits.max_num_batched_tokens
        unbounded = [ceil(DEAREST_TOKEN * tier.floor * most) for tier in tiers]
        unbounded = [n if rank in before.owed else 0 for rank, n in enumerate(unbounded)]
        unbounded[0] = MIN_PROMPT_TOKENS
        bounded = []
        for item in step.plan.items:
            rank = self.drive.sequences[item.sequence_id].rank
            if rank == 0 and item.num_tokens == 1:
                continue
            aside = min(unbounded[rank], item.num_tokens)
            unbounded[rank] -= aside
            if item.num_tokens > aside:
                bounded.append((item.num_tokens - aside, item.start + aside))
        seconds = before.cost.time_s(StepFeatures.of(bounded))
        fits = seconds <= step.plan.budget_s * (1 + 1e-9)
        assert fits or sum(n for n, _ in bounded) <= MIN_TOKENS, "I7: the step takes too long"


def check_streams(before: StepInput, step: ScheduledStep) -> None:
    """I6: every stream of rank 0 has its token in every step that has room for it."""
    served = {item.sequence_id for item in step.plan.items} | set(step.plan.preempted)
    for resident in before.residents:
        if resident.rank == 0 and resident.num_left == 1 and resident.sequence_id not in served:
            reason = step.plan.waits.get(resident.sequence_id)
            assert reason is Wait.BLOCKS or before.owed, f"I6: a stream stalls: {reason}"


SEEN = ("parked by time", "bounded by time", "late", "due before the end", "held", "preempted")


def seen(before: StepInput, step: ScheduledStep, most_tokens: int) -> Iterator[str]:
    """Yield what this step shows that only time, or being overtaken often, brings about."""
    plan, residents = step.plan, before.residents
    left = most_tokens - plan.features.num_tokens
    if left > 0 and any(plan.waits.get(r.sequence_id) is Wait.TOKENS for r in residents):
        yield "parked by time"
    if left > 0 and plan.budget_s < inf and Wait.TOKENS in plan.waits.values():
        yield "bounded by time"
    if any(r.due_s < 0 for r in residents):
        yield "late"
    if any(0 <= r.due_s < plan.budget_s for r in residents):
        yield "due before the end"
    if Wait.HELD in plan.waits.values():
        yield "held"
    if plan.preempted:
        yield "preempted"


TestBooksInTime = BooksInTime.TestCase
TestBooksInTime.settings = WALK


def test_the_walk_in_time_reaches_what_time_changes() -> None:
    """With the same number of examples, always the same ones."""

    class Counting(BooksInTime):
        reached: ClassVar[Counter[str]] = Counter()

    options = settings(WALK, phases=[Phase.generate], derandomize=True, database=None)
    run_state_machine_as_test(Counting, settings=options)
    rarest = min(SEEN, key=Counting.reached.__getitem__)
    assert Counting.reached[rarest] >= 20, f"{rarest}: {Counting.reached}"
