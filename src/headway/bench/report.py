"""How do the figures read, on a terminal and for a program?"""

from collections.abc import Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from headway.bench.isolation import IsolationReport
from headway.bench.summary import TierSummary
from headway.bench.verdict import Verdict

COLUMNS = (
    "run",
    "phase",
    "tier",
    "sent",
    "err",
    "TTFT p50",
    "p90",
    "p99",
    "gap p99",
    "tok/s",
)


def rows(report: IsolationReport) -> list[tuple[str, ...]]:
    """Return the cells under `COLUMNS`, one row for each run, phase and tier; medians of repeats.

    A TTFT with `>=` holds requests that were given up; their wait is a lower bound.
    """
    seen = dict.fromkeys(
        (phase.label, phase.phase, tier) for phase in report.phases for tier in phase.tiers
    )
    return [
        (*key, *_cells(summary)) for key in seen if (summary := report.middle(*key)) is not None
    ]


def table(report: IsolationReport) -> Table:
    """Return the figures as a table for the terminal."""
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for index, name in enumerate(COLUMNS):
        shown.add_column(name, justify="left" if index < 3 else "right", no_wrap=True)
    for row in rows(report):
        shown.add_row(*row)
    return shown


def sentences(verdict: Verdict) -> list[str]:
    """Return what the ratios say, in words."""
    lines = []
    if verdict.ttft_p99_of_baseline is not None:
        lines.append(
            f"{verdict.label}: critical TTFT p99 under the flood is "
            f"{verdict.ttft_p99_of_baseline:.3f} of first come first served (goal: at most 0.1)"
        )
    if verdict.ttft_p99_of_unloaded is not None:
        lines.append(
            f"{verdict.label}: critical TTFT p99 under the flood is "
            f"{verdict.ttft_p99_of_unloaded:.2f} times that without other load"
        )
    if verdict.bulk_share is not None:
        lines.append(
            f"{verdict.label}: bulk work gets {verdict.bulk_share:.0%} of its tokens/s alone "
            "(goal: at least 85%)"
        )
    return lines


def to_json(report: IsolationReport, verdicts: Sequence[Verdict]) -> bytes:
    """Return everything, indented: load, machine, phases with their points, verdicts."""
    document = msgspec.to_builtins(report) | {"verdicts": msgspec.to_builtins(verdicts)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _cells(summary: TierSummary) -> tuple[str, ...]:
    bound = ">=" if summary.num_unanswered else ""
    return (
        str(summary.num_requests),
        str(summary.num_errors),
        _seconds(summary.ttft_p50_s),
        _seconds(summary.ttft_p90_s, bound),
        _seconds(summary.ttft_p99_s, bound),
        _seconds(summary.gap_p99_s),
        f"{summary.tokens_per_s:.0f}",
    )


def _seconds(value: float | None, bound: str = "") -> str:
    if value is None:
        return "-"
    return f"{bound}{value * 1000:.0f} ms" if value < 1 else f"{bound}{value:.2f} s"
