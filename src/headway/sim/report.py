"""How do the figures of simulated runs read, on a terminal and for a program?"""

from collections.abc import Iterator, Sequence

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from headway.sim.measures import RunReport, TierReport
from headway.sim.workload import TraceRows

COLUMNS = (
    "policy",
    "seed",
    "tier",
    "sent",
    "done",
    "attained",
    "goodput",
    "TTFT p50",
    "p99",
    "TPOT p99",
    "gap p99",
    "tok/s",
    "share",
    "least 30 s",
)
RUN_COLUMNS = (
    "policy",
    "seed",
    "tok/s",
    "busy",
    "Jain",
    "fill",
    "time fill",
    "late",
    "pred. err",
    "preempt",
    "recomputed",
    "parked",
    "KV",
    "waits in p90",
)
_TEXT_COLUMNS = 3


def rows(runs: Sequence[RunReport]) -> list[tuple[str, ...]]:
    """Return the cells under `COLUMNS`, one row for each run and tier."""
    return [
        (run.policy, str(run.seed), *_tier_cells(tier))
        for run in runs
        for tier in run.tiers
        if tier.num_submitted or tier.tokens_per_s > 0
    ]


def run_rows(runs: Sequence[RunReport]) -> list[tuple[str, ...]]:
    """Return the cells under `RUN_COLUMNS`, one row for each run."""
    return [_run_cells(run) for run in runs]


def tables(runs: Sequence[RunReport]) -> list[Table]:
    """Return the figures by tier and by run, for the terminal."""
    return [_table(COLUMNS, rows(runs)), _table(RUN_COLUMNS, run_rows(runs))]


def notes(runs: Sequence[RunReport]) -> list[str]:
    """Return a sentence, once, for each trace of which rows were left out or answers cut."""
    return list(
        dict.fromkeys(
            note
            for run in runs
            for name, rows in run.trace_rows.items()
            for note in _notes_of(f"{run.scenario}, stream {name}", rows)
        )
    )


def _notes_of(where: str, rows: TraceRows) -> Iterator[str]:
    num_left_out = rows.num_before + rows.num_after
    if num_left_out > 0:
        yield (
            f"{where}: {num_left_out} of the trace's {rows.num_rows} rows were left out, "
            f"{rows.num_before} before from_s and {rows.num_after} after the stream's end"
        )
    if rows.num_cut > 0:
        yield f"{where}: {rows.num_cut} of the trace's answers were cut to max_tokens"


def to_json(runs: Sequence[RunReport]) -> bytes:
    """Return everything, indented: a list of runs."""
    return msgspec.json.format(msgspec.json.encode(list(runs)), indent=2)


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Table:
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for index, name in enumerate(columns):
        shown.add_column(name, justify="left" if index < _TEXT_COLUMNS else "right", no_wrap=True)
    for row in cells:
        shown.add_row(*row)
    return shown


def _tier_cells(tier: TierReport) -> tuple[str, ...]:
    return (
        tier.tier,
        str(tier.num_submitted),
        str(tier.num_completed),
        _share(tier.attainment),
        f"{tier.goodput_rps:.2f}/s",
        _seconds(tier.ttft_s.p50),
        _seconds(tier.ttft_s.p99),
        _seconds(tier.tpot_s.p99),
        _seconds(tier.gap_s.p99),
        f"{tier.tokens_per_s:.0f}",
        _share(tier.service_share),
        _share(tier.least_share_30s),
    )


def _run_cells(run: RunReport) -> tuple[str, ...]:
    return (
        run.policy,
        str(run.seed),
        f"{run.tokens_per_s:.0f}",
        _share(run.busy),
        "-" if run.jain is None else f"{run.jain:.3f}",
        _share(run.token_fill),
        _share(run.time_fill),
        _share(run.late_share),
        _share(run.prediction_error),
        str(run.num_preemptions),
        _share(run.recomputed_share),
        str(run.num_parked),
        _share(run.kv_used),
        _share(run.wait_calibration),
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
