"""How is it shown that critical requests overtake a flood?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from headway.bench.client import Server
from headway.bench.isolation import IsolationReport, Run, measure
from headway.bench.load import Load, Phase
from headway.bench.plot import write_html, write_png
from headway.bench.report import sentences, table, to_json
from headway.bench.verdict import judge
from headway.cli.live import picture
from headway.cli.settings import SetOption, overrides
from headway.cli.stacks import BASELINE, OURS, own_runs
from headway.clock import MonotonicClock

_REFRESH_S = 1.0
_COUNTED_AFTER = 1 / 6
"""Share of a run that fills the server and is not counted."""


def demo(
    duration_s: float = typer.Option(60.0, "--duration", min=1.0, help="Seconds of each run."),
    bulk_callers: int = typer.Option(48, min=1, help="Bulk callers in a closed loop."),
    grace_s: float = typer.Option(45.0, "--grace", min=0.0, help="Longest wait after each run."),
    seed: int = typer.Option(0, help="Seed of the arrivals."),
    folder: Annotated[Path, typer.Option("--out", help="Where the results go.")] = Path(
        "headway-demo"
    ),
    settings: SetOption = None,
) -> None:
    """Flood the real engine with bulk work, first come first served and then by tier."""
    load = Load(
        bulk_callers=bulk_callers,
        duration_s=duration_s,
        warmup_s=duration_s * _COUNTED_AFTER,
        grace_s=grace_s,
        seed=seed,
    )
    console = Console()
    console.print(
        f"{bulk_callers} bulk callers without a pause (about 400 tokens in, 128 out), and a "
        "critical request (64 in, 32 out) each two seconds at random.\n"
        f"{duration_s:g} s first come first served (fcfs), then {duration_s:g} s {OURS}.\n"
    )
    runs = own_runs(overrides(settings, {}), only_flood=True)
    report = asyncio.run(_show(runs, load, console))
    _finish(report, console, folder)


async def _show(runs: list[Run], load: Load, console: Console) -> IsolationReport:
    with Live(console=console, refresh_per_second=4, transient=False) as live:

        def watch(label: str, _: str, phase: Phase) -> AbstractAsyncContextManager[None]:
            return _refreshed(live, label, phase)

        shown = [replace(run, open=_announced(live, run)) for run in runs]
        return await measure(shown, load, MonotonicClock(), watch=watch)


@asynccontextmanager
async def _refreshed(live: Live, label: str, phase: Phase) -> AsyncIterator[None]:
    async def refresh() -> None:
        while True:
            live.update(picture(label, phase))
            await asyncio.sleep(_REFRESH_S)

    task = asyncio.create_task(refresh())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        last = picture(label, phase)
        live.update(Text(""))
        live.console.print(last)


def _announced(live: Live, run: Run) -> Callable[[], AbstractAsyncContextManager[Server]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Server]:
        task = asyncio.create_task(_count_up(live, f"{run.label}: loading the model"))
        try:
            async with run.open() as server:
                task.cancel()
                yield server
        finally:
            task.cancel()

    return opened


async def _count_up(live: Live, text: str) -> None:
    clock = MonotonicClock()
    start = clock.now()
    while True:
        live.update(Text(f"{text} ... {clock.now() - start:.0f} s"))
        await asyncio.sleep(_REFRESH_S)


def _finish(report: IsolationReport, console: Console, folder: Path) -> None:
    verdict = judge(report, OURS, BASELINE)
    console.print(table(report))
    for line in sentences(verdict):
        console.print(line, soft_wrap=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_png(report, folder / "isolation.png")
    write_html(report, folder / "isolation.html")
    (folder / "isolation.json").write_bytes(to_json(report, [verdict]))
    console.print(f"Plot and figures: {folder}/isolation.html, .png, .json")
