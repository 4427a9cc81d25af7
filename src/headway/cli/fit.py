"""How is a step time fitted to the embedded engine from the command line?"""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.bench.client import Server
from headway.bench.fit import LoggedStep, fit_steps, read_log, to_toml
from headway.bench.mixed_load import run_mixed_load
from headway.bench.stack import Stack
from headway.cli.settings import SetOption, overrides
from headway.clock import MonotonicClock


def fit(
    duration_s: float = typer.Option(120.0, "--duration", min=5.0, help="Seconds of load."),
    output: Annotated[
        Path | None, typer.Option("--output", help="Write the model as TOML, for `simulate`.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", help="Fit this step log instead of running an engine."),
    ] = None,
    settings: SetOption = None,
) -> None:
    """Fit the time of a step to our own engine, for the simulator.

    Runs gateway and engine under a mixed load, or reads a log that `engine.step_log` wrote.
    """
    if log is not None:
        steps = read_log(log)
    else:
        steps = asyncio.run(_run(duration_s, overrides(settings, {})))
    found = fit_steps(steps)
    text = to_toml(found)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    Console().print(text, end="", highlight=False)


async def _run(duration_s: float, settings: Mapping[str, object]) -> list[LoggedStep]:
    with tempfile.TemporaryDirectory(prefix="headway-fit-") as folder:
        log = Path(folder) / "steps.jsonl"
        async with Stack("qos", settings={**settings, "engine.step_log": str(log)}) as stack:
            await run_mixed_load(Server(base_url=stack.url), duration_s, MonotonicClock())
        return read_log(log)
