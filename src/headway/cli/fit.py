"""How is a step time fitted to the embedded engine from the command line?"""

import asyncio
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headway.bench.client import Server
from headway.bench.fit import LoggedStep, fit_steps, read_log, to_toml
from headway.bench.mixed_load import run_mixed_load
from headway.bench.stack import Stack
from headway.cli.flood_load import check_seconds
from headway.cli.outputs import check_outputs, writing
from headway.cli.settings import SetOption, overrides
from headway.clock import MonotonicClock
from headway.config import load_config
from headway.errors import ConfigError


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
    check_seconds({"--duration": duration_s})
    check_outputs({"--output": output}, [] if log is None else [log])
    values = overrides(settings, {})
    load_config(None, values)
    if log is not None:
        if values:
            raise ConfigError("--set", "is for the engine, and with --log none is run")
        steps = read_log(log)
    else:
        steps = asyncio.run(_run(duration_s, values))
    text = to_toml(fit_steps(steps))
    with ExitStack() as last:
        # Whatever becomes of the file: minutes of measuring are in it.
        last.callback(Console().print, text, end="", highlight=False)
        if output is not None:
            with writing("--output", output):
                output.write_text(text, encoding="utf-8")


async def _run(duration_s: float, settings: Mapping[str, object]) -> list[LoggedStep]:
    with tempfile.TemporaryDirectory(prefix="headway-fit-") as folder:
        log = Path(folder) / "steps.jsonl"
        async with Stack("qos", settings={**settings, "engine.step_log": str(log)}) as stack:
            await run_mixed_load(Server(base_url=stack.url), duration_s, MonotonicClock())
        return read_log(log)
