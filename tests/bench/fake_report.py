"""An isolation report whose figures are made up, so that every number in it is known."""

from headway.bench.isolation import BULK_ALONE, FLOOD, UNLOADED, IsolationReport, PhaseReport, Point
from headway.bench.load import Load
from headway.bench.summary import TierSummary


def summary(*, ttft_p99_s: float | None, tokens_per_s: float, unanswered: int = 0) -> TierSummary:
    """A tier whose other figures follow from these."""
    return TierSummary(
        num_requests=50,
        num_finished=48,
        num_errors=2,
        num_unanswered=unanswered,
        ttft_p50_s=None if ttft_p99_s is None else ttft_p99_s / 2,
        ttft_p90_s=ttft_p99_s,
        ttft_p99_s=ttft_p99_s,
        gap_p50_s=0.05,
        gap_p99_s=0.1,
        tokens_per_s=tokens_per_s,
        prompt_tokens_mean=64.0,
        output_tokens_mean=32.0,
    )


def phase(label: str, name: str, repeat: int = 0, **tiers: TierSummary) -> PhaseReport:
    """A phase with two points for each tier."""
    points = tuple(
        Point(tier=tier, sent_s=at, ttft_s=0.5 + at, answered=at > 1)
        for tier in tiers
        for at in (1.0, 2.0)
    )
    return PhaseReport(label=label, phase=name, repeat=repeat, tiers=tiers, points=points)


def report() -> IsolationReport:
    """Ours against arrival order: a twentieth of the TTFT, 90 % of the bulk tokens."""
    return IsolationReport(
        load=Load(),
        machine="2 cores, test",
        phases=(
            phase(
                "fcfs",
                FLOOD,
                critical=summary(ttft_p99_s=20.0, tokens_per_s=10, unanswered=3),
                bulk=summary(ttft_p99_s=30.0, tokens_per_s=130),
            ),
            phase("ours", UNLOADED, critical=summary(ttft_p99_s=0.8, tokens_per_s=16)),
            phase("ours", BULK_ALONE, bulk=summary(ttft_p99_s=25.0, tokens_per_s=100)),
            phase(
                "ours",
                FLOOD,
                critical=summary(ttft_p99_s=1.0, tokens_per_s=16),
                bulk=summary(ttft_p99_s=40.0, tokens_per_s=90),
            ),
        ),
    )
