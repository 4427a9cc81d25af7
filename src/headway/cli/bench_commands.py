"""How are the measurements run from the command line?"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.bench.client import Server
from headway.bench.engine_speed import measure_speed
from headway.bench.isolation import (
    ALL_PHASES,
    FLOOD,
    IsolationReport,
    PhaseReport,
    Run,
    measure,
)
from headway.bench.load import Shape
from headway.bench.plot import write_html, write_png
from headway.bench.report import sentences, table, to_json
from headway.bench.verdict import judge
from headway.cli.agreement import agreement
from headway.cli.fit import fit
from headway.cli.flood_load import flood_load
from headway.cli.kept import tell_kept
from headway.cli.outputs import check_outputs, writing
from headway.cli.settings import SetOption, overrides
from headway.cli.stacks import BASELINE, OURS, own_runs
from headway.cli.tell import tell
from headway.clock import MonotonicClock

app = typer.Typer(help="Measure.", no_args_is_help=True, rich_markup_mode=None)
app.command("fit")(fit)
app.command("agreement")(agreement)

UrlOption = Annotated[
    list[str] | None,
    typer.Option("--url", help="A server to measure instead of our own; may be repeated."),
]
KeyOption = Annotated[
    str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", help="Key for the servers.")
]
NameOption = Annotated[
    str | None, typer.Option("--model", help="Model to ask for; else the first listed.")
]


@app.command("isolation")
def isolation(  # noqa: PLR0913  (typer makes an option of each parameter)
    url: UrlOption = None,
    model: NameOption = None,
    api_key: KeyOption = None,
    vllm_priority: bool = typer.Option(False, help="Send vLLM's `priority` by tier."),
    duration_s: float = typer.Option(120.0, "--duration", min=0.1, help="Seconds of a phase."),
    warmup_s: float = typer.Option(30.0, "--warmup", min=0.0, help="Uncounted seconds of it."),
    grace_s: float = typer.Option(90.0, "--grace", min=0.0, help="Longest wait after a phase."),
    bulk_callers: int = typer.Option(48, min=1, help="Bulk callers in a closed loop."),
    critical_every_s: float = typer.Option(
        2.0, "--critical-every", min=0.01, help="Mean seconds between critical requests."
    ),
    critical_from_s: float = typer.Option(
        0.0, "--critical-from", min=0.0, help="Seconds of a phase before they begin to arrive."
    ),
    seed: int = typer.Option(0, help="Seed of the arrivals."),
    repeat: int = typer.Option(1, min=1, help="Repeats; medians are reported."),
    alternate: bool = typer.Option(True, help="Turn the order around in each second repeat."),
    settings: SetOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures.")] = None,
    png_file: Annotated[Path | None, typer.Option("--png", help="Write the plot.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a page.")] = None,
) -> None:
    """Measure how much of a flood of bulk work critical requests feel.

    Without --url: our own stack, first come first served and then by tier, bulk alone beside it.
    """
    check_outputs({"--json": json_file, "--png": png_file, "--html": html_file})
    load = flood_load(
        bulk_callers=bulk_callers,
        critical_every_s=critical_every_s,
        critical_from_s=critical_from_s,
        duration_s=duration_s,
        warmup_s=warmup_s,
        grace_s=grace_s,
        seed=seed,
    )
    if url:
        priorities = {"critical": -1, "bulk": 1} if vllm_priority else {}
        servers = [
            Server(base_url=item, model=model, api_key=api_key, priorities=priorities)
            for item in url
        ]
        runs = [_run_of(server) for server in servers]
        baseline = None
    else:
        runs, baseline = own_runs(overrides(settings, {})), BASELINE
    measuring = partial(measure, runs, load, MonotonicClock(), watch=tell, alternate=alternate)
    ended: list[PhaseReport] = []
    try:
        asyncio.run(measuring(repeat=repeat, ended=ended))
    finally:
        tell_kept(len(ended), repeat * sum(len(run.phases) for run in runs), "phases")
        if ended:
            report = IsolationReport(load=load, phases=tuple(ended))
            _show(report, baseline, json_file, png_file, html_file)


def _show(
    report: IsolationReport,
    baseline: str | None,
    json_file: Path | None,
    png_file: Path | None,
    html_file: Path | None,
) -> None:
    """Print the figures and write those files that are asked for."""
    judged = [label for label in report.labels() if label != baseline]
    verdicts = [judge(report, label, baseline) for label in judged]
    console = Console()
    console.print(table(report))
    for verdict in verdicts:
        for line in sentences(verdict):
            console.print(line, soft_wrap=True)
    if json_file is not None:
        with writing("--json", json_file):
            json_file.write_bytes(to_json(report, verdicts))
    if not report.was_measured(FLOOD):
        return
    if png_file is not None:
        with writing("--png", png_file):
            write_png(report, png_file)
    if html_file is not None:
        with writing("--html", html_file):
            write_html(report, html_file)


@app.command("engine-speed")
def engine_speed(
    url: UrlOption = None,
    model: NameOption = None,
    api_key: KeyOption = None,
    concurrency: int = typer.Option(32, min=1, help="Requests at once."),
    prompt_tokens: int = typer.Option(256, min=1, help="Tokens in."),
    output_tokens: int = typer.Option(64, min=2, help="Tokens out."),
    rounds: int = typer.Option(3, min=1, help="Measured rounds; medians are reported."),
    settings: SetOption = None,
) -> None:
    """Measure tokens per second of one stream and of many requests at once."""
    shape = Shape(tier="normal", num_prompt_tokens=prompt_tokens, num_output_tokens=output_tokens)
    if url:
        runs = [_run_of(Server(base_url=item, model=model, api_key=api_key)) for item in url]
    else:
        runs = [run for run in own_runs(overrides(settings, {})) if run.label == OURS]

    async def measure_all() -> None:
        for run in runs:
            async with run.open() as server:
                speed = await measure_speed(
                    server, shape, MonotonicClock(), concurrency=concurrency, rounds=rounds
                )
            typer.echo(
                f"{run.label}: one stream {speed.single_ms_per_token:.1f} ms per token, first "
                f"token after {speed.single_ttft_s * 1000:.0f} ms; {concurrency} at once "
                f"{speed.total_tokens_per_s:.0f} tokens/s, {speed.output_tokens_per_s:.0f} of "
                "them output"
            )

    asyncio.run(measure_all())


def _run_of(server: Server) -> Run:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Server]:
        yield server

    label = server.base_url.partition("://")[2]
    return Run(label=label, phases=ALL_PHASES, open=opened)
