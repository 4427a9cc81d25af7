"""What does a running phase look like from second to second?"""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.bench.load import Phase
from headway.bench.records import RequestRecord
from headway.bench.summary import percentile, tokens_between

_RATE_SPAN_S = 5.0
_TTFT_SPAN_S = 30.0
_TIERS = ("critical", "bulk")


def picture(label: str, phase: Phase) -> RenderableType:
    """Return the state of a phase: progress, and a row for each tier."""
    now, load = phase.now(), phase.load
    over = now >= load.duration_s
    state = "waiting for the last answers" if over else f"{now:.0f} of {load.duration_s:.0f} s"
    shown = Table(expand=False)
    for name in ("tier", "queued", "running", "TTFT p50", "TTFT p99", "longest wait", "tokens/s"):
        shown.add_column(name, justify="left" if name == "tier" else "right")
    for tier in _TIERS:
        style = "bold red" if tier == "critical" else ""
        shown.add_row(*tier_row(phase.records, tier, now), style=style)
    return Group(
        Text(f"{label}: {load.bulk_callers} bulk callers and critical requests, {state}"),
        Padding(
            ProgressBar(total=load.duration_s, completed=min(now, load.duration_s), width=60), 0
        ),
        shown,
    )


def tier_row(records: Sequence[RequestRecord], tier: str, now: float) -> tuple[str, ...]:
    """Return a tier's cells. TTFT is of first tokens in the last 30 s, the rate of the last 5 s."""
    mine = [record for record in records if record.tier == tier]
    active = [record for record in mine if not record.finished and record.error is None]
    waits = [now - record.sent_s for record in active if not record.chunk_s]
    recent = [
        record.chunk_s[0] - record.sent_s
        for record in mine
        if record.chunk_s and record.chunk_s[0] > now - _TTFT_SPAN_S
    ]
    span_s = min(_RATE_SPAN_S, max(now, 0.001))
    return (
        tier,
        str(len(waits)),
        str(len(active) - len(waits)),
        _seconds(percentile(recent, 0.5)),
        _seconds(percentile(recent, 0.99)),
        _seconds(max(waits, default=None)),
        f"{tokens_between(mine, now - span_s, now) / span_s:.0f}",
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
