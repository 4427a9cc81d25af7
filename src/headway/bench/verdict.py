"""Do the figures of an isolation run hold what is promised?"""

from dataclasses import dataclass

from headway.bench.isolation import BULK_ALONE, FLOOD, UNLOADED, IsolationReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Ratios of medians. None where one of the two was not measured."""

    label: str
    ttft_p99_of_baseline: float | None
    """Critical TTFT p99 under the flood, as a share of the baseline run's."""
    ttft_p99_of_unloaded: float | None
    """Critical TTFT p99 under the flood, as a multiple of that without other load."""
    bulk_share: float | None
    """Bulk tokens/s under the flood, as a share of bulk alone."""


def judge(report: IsolationReport, label: str, baseline: str | None) -> Verdict:
    """Return the ratios of the run `label`, against the run `baseline` when there is one."""
    critical, bulk = report.load.critical.tier, report.load.bulk.tier
    flood = report.middle(label, FLOOD, critical)
    before = None if baseline is None else report.middle(baseline, FLOOD, critical)
    unloaded = report.middle(label, UNLOADED, critical)
    flood_bulk = report.middle(label, FLOOD, bulk)
    alone = report.middle(label, BULK_ALONE, bulk)
    p99 = None if flood is None else flood.ttft_p99_s
    return Verdict(
        label=label,
        ttft_p99_of_baseline=_ratio(p99, None if before is None else before.ttft_p99_s),
        ttft_p99_of_unloaded=_ratio(p99, None if unloaded is None else unloaded.ttft_p99_s),
        bulk_share=_ratio(
            None if flood_bulk is None else flood_bulk.tokens_per_s,
            None if alone is None else alone.tokens_per_s,
        ),
    )


def _ratio(value: float | None, reference: float | None) -> float | None:
    return None if value is None or not reference else value / reference
