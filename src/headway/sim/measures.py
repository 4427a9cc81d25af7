"""What do the records of a run amount to?

Definitions are those of `docs/simulator.md`. Only requests that arrived after the warm-up count,
and rates are over the time from then to the end of arrivals.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from headway.core.outcome import Outcome
from headway.core.tier import Tier
from headway.sim.course import Course, course, course_spans
from headway.sim.records import GAP_UNIT_S, OUTCOMES, Recorder
from headway.sim.scenario import Scenario
from headway.sim.shares import jain_index, least_share
from headway.sim.workload import TraceRows, trace_rows

MOST_TENANTS = 100
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Percentiles(Struct, frozen=True):
    """Seconds; None where nothing was measured."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


class TierReport(Struct, frozen=True, kw_only=True):
    """The figures of one tier."""

    tier: str
    num_submitted: int
    num_completed: int
    attainment: float | None
    """Share of all submitted, but for those whose client left, that ended within all targets."""
    goodput_rps: float
    goodput_tokens_per_s: float
    """Output tokens of the requests that ended within all targets."""
    tokens_per_s: float
    """Output tokens."""
    service_share: float
    """Share of the cost of all that was computed."""
    least_share_30s: float | None
    """Least such share over any 30 s in which the tier had something waiting throughout."""
    ttft_s: Percentiles
    tpot_s: Percentiles
    gap_s: Percentiles
    queue_s: Percentiles
    preemptions_p99: float | None
    outcomes: dict[str, int]


class TenantReport(Struct, frozen=True, kw_only=True):
    """What one tenant got in one tier."""

    tenant: str
    tier: str
    weight: float
    service_share: float
    num_submitted: int
    num_completed: int


class RunReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one run."""

    scenario: str
    policy: str
    seed: int
    duration_s: float
    tiers: list[TierReport]
    tenants: list[TenantReport]
    """Those that got most, up to `MOST_TENANTS`."""
    num_requests: int
    num_steps: int
    tokens_per_s: float
    """Output tokens."""
    service_per_s: float
    """Cost of what was computed, at the prices of `core.cost`."""
    jain: float | None
    """Mean Jain index of the tenants that were backlogged together, in windows of 120 s."""
    jain_least: float | None
    busy: float
    """Share of the time that nodes were in a step."""
    token_fill: float | None
    """Tokens computed over those that the steps might have had."""
    time_fill: float | None
    """Predicted time of the steps over the time they were planned for."""
    late_share: float | None
    """Share of the steps that took longer than they were planned for."""
    prediction_error: float | None
    """Sum of the predictions' absolute errors over the time of the steps."""
    mean_step_s: float | None
    """Mean time of the steps that ended in the measured time."""
    longest_step_s: float
    num_preemptions: int
    recomputed_share: float
    """Tokens computed a second time over all that were computed."""
    num_parked: int
    kv_used: float
    """Mean share of the blocks that were held."""
    wait_calibration: float | None
    """Share of the waits that were within the p90 predicted on arrival; one that left unserved
    after it counts as longer."""
    num_waits_predicted: int
    course_s: list[float]
    """Ends of the spans that `course` is about; the warm-up is among them."""
    course: list[Course]
    """By rank."""
    limit: list[int | None]
    """Requests that all nodes together took, at the end of each span; None: nobody limited them."""
    trace_rows: dict[str, TraceRows] = {}
    """Of the streams that replay a trace; left out where none does."""


class _Columns:
    """The rows that count, as arrays."""

    def __init__(self, recorder: Recorder) -> None:
        rows = recorder.rows
        arrival = np.array(rows.arrival)
        counts = (arrival >= recorder.warmup_s) & (arrival < recorder.duration_s)
        self.rank = np.array(rows.rank)[counts]
        self.account = np.array(rows.account)[counts]
        self.outcome = np.array(rows.outcome)[counts]
        self.wait_s = np.array(rows.wait_s)[counts]
        self.ttft_s = np.array(rows.ttft_s)[counts]
        self.tpot_s = np.array(rows.tpot_s)[counts]
        self.max_gap_s = np.array(rows.max_gap_s)[counts]
        self.output_tokens = np.array(rows.output_tokens)[counts]
        self.num_preemptions = np.array(rows.num_preemptions)[counts]
        self.predicted_p90_s = np.array(rows.predicted_p90_s)[counts]
        ended_at = np.array(rows.ended_at)[counts]
        self.stayed_s = ended_at - arrival[counts]
        self.in_time: Flags = ended_at <= np.array(rows.deadline)[counts]
        self.completed: Flags = self.outcome == OUTCOMES.index(Outcome.COMPLETED)
        self.cancelled: Flags = self.outcome == OUTCOMES.index(Outcome.CANCELLED)

    def waits_within_p90(self) -> tuple[int, int]:
        """Return how many waits were within the p90 predicted on arrival, and of how many.

        One that left unserved has a wait that was too long if it left later than its p90; of one
        that left earlier nothing is known.
        """
        told = self.predicted_p90_s >= 0
        served = told & (self.wait_s >= 0)
        missed = told & (self.wait_s < 0) & (self.stayed_s > self.predicted_p90_s)
        within = served & (self.wait_s <= self.predicted_p90_s)
        return int(within.sum()), int(served.sum() + missed.sum())

    def within(self, tier: Tier) -> Flags:
        """Which of all rows ended within the targets of `tier` and by their own deadlines."""
        good = self.completed & self.in_time
        for limit, values in (
            (tier.target.ttft_s, self.ttft_s),
            (tier.target.tpot_s, self.tpot_s),
            (tier.target.gap_s, self.max_gap_s),
        ):
            if limit is not None:
                good &= values <= limit
        return good


def measure(
    recorder: Recorder, scenario: Scenario, policy: str, seed: int, steps: int
) -> RunReport:
    """Return the figures of a run that has ended."""
    columns = _Columns(recorder)
    span_s = scenario.duration_s - scenario.warmup_s
    seconds = recorder.seconds[int(scenario.warmup_s) : int(scenario.duration_s)]
    service = np.array([each.service for each in seconds]).reshape(-1, recorder.num_ranks)
    totals = recorder.steps
    engines = recorder.engines
    computed = sum(each for second in recorder.seconds for each in second.computed)
    spans = course_spans(len(recorder.seconds))
    jain = jain_index(seconds, recorder.accounts)
    within_p90, num_waits = columns.waits_within_p90()
    return RunReport(
        scenario=scenario.name,
        policy=policy,
        seed=seed,
        duration_s=span_s,
        tiers=[_tier(tier, columns, recorder, service, span_s) for tier in scenario.tiers.all],
        tenants=_tenants(columns, recorder, scenario.tiers.all),
        num_requests=recorder.num_arrived,
        num_steps=steps,
        tokens_per_s=sum(sum(each.tokens) for each in seconds) / span_s,
        service_per_s=float(service.sum()) / span_s,
        jain=jain.mean,
        jain_least=jain.least,
        busy=recorder.busy_s / (span_s * max(1, scenario.nodes.count)),
        token_fill=_ratio(totals.tokens, totals.token_budget),
        time_fill=_ratio(totals.budgeted_s, totals.time_budget_s),
        late_share=_ratio(totals.num_late, totals.num_budgeted),
        prediction_error=_ratio(totals.error_s, totals.actual_of_predicted_s),
        mean_step_s=_ratio(totals.took_s, totals.num_steps),
        longest_step_s=recorder.longest_step_s,
        num_preemptions=sum(each.num_preemptions for each in engines),
        recomputed_share=sum(each.num_recomputed_tokens for each in engines) / max(1, computed),
        num_parked=sum(each.num_parked for each in engines),
        kv_used=float(np.mean([each.kv_used for each in seconds])) if seconds else 0.0,
        wait_calibration=_ratio(within_p90, num_waits),
        num_waits_predicted=num_waits,
        course_s=[float(end) for _, end in spans],
        course=[course(recorder, rank, spans) for rank in range(recorder.num_ranks)],
        limit=[recorder.seconds[end - 1].limit for _, end in spans],
        trace_rows=trace_rows(scenario),
    )


def _tier(
    tier: Tier, columns: _Columns, recorder: Recorder, service: Numbers, span_s: float
) -> TierReport:
    mine: Flags = columns.rank == tier.rank
    judged = mine & ~columns.cancelled
    good = mine & columns.within(tier)
    answered = mine & (columns.ttft_s >= 0)
    several = mine & columns.completed & (columns.output_tokens > 1)
    outcomes = Counter(OUTCOMES[number].value for number in columns.outcome[mine])
    seconds = recorder.seconds[int(recorder.warmup_s) : int(recorder.duration_s)]
    return TierReport(
        tier=tier.name,
        num_submitted=int(mine.sum()),
        num_completed=int((mine & columns.completed).sum()),
        attainment=_ratio(int(good.sum()), int(judged.sum())),
        goodput_rps=float(good.sum()) / span_s,
        goodput_tokens_per_s=float(columns.output_tokens[good].sum()) / span_s,
        tokens_per_s=sum(each.tokens[tier.rank] for each in seconds) / span_s,
        service_share=_ratio(float(service[:, tier.rank].sum()), float(service.sum())) or 0.0,
        least_share_30s=least_share(seconds, tier.rank),
        ttft_s=_percentiles(columns.ttft_s[answered]),
        tpot_s=_percentiles(columns.tpot_s[several]),
        gap_s=_counted_percentiles(recorder.gaps[tier.rank]),
        queue_s=_percentiles(columns.wait_s[mine & (columns.wait_s >= 0)]),
        preemptions_p99=_percentile(columns.num_preemptions[answered], 99),
        outcomes=dict(sorted(outcomes.items())),
    )


def _tenants(columns: _Columns, recorder: Recorder, tiers: Sequence[Tier]) -> list[TenantReport]:
    accounts = recorder.accounts
    service = np.zeros(len(accounts))
    for second in recorder.seconds[int(recorder.warmup_s) : int(recorder.duration_s)]:
        for number, amount in second.accounts.items():
            service[number] += amount
    total = service.sum()
    most = sorted(range(len(accounts)), key=lambda number: (-service[number], number))
    return [
        TenantReport(
            tenant=accounts[number].tenant,
            tier=tiers[accounts[number].rank].name,
            weight=accounts[number].weight,
            service_share=_ratio(float(service[number]), float(total)) or 0.0,
            num_submitted=int((columns.account == number).sum()),
            num_completed=int(((columns.account == number) & columns.completed).sum()),
        )
        for number in most[:MOST_TENANTS]
    ]


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _percentile(values: NDArray[np.generic], percent: float) -> float | None:
    return None if len(values) == 0 else float(np.percentile(values.astype(float), percent))


def _percentiles(values: Numbers) -> Percentiles:
    return Percentiles(*(_percentile(values, percent) for percent in (50, 90, 99)))


def _counted_percentiles(counts: Counter[int]) -> Percentiles:
    """Return the percentiles of gaps that were counted by length, to within `GAP_UNIT_S`."""
    if not counts:
        return Percentiles()
    lengths = sorted(counts)
    upto = np.cumsum([counts[length] for length in lengths])
    where = [int(np.searchsorted(upto, share * upto[-1])) for share in (0.5, 0.9, 0.99)]
    return Percentiles(*((lengths[index] + 0.5) * GAP_UNIT_S for index in where))
