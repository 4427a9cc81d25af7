"""How is a simulation run from the command line?"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headway.cli.settings import SetOption, overrides
from headway.errors import ConfigError
from headway.sim.measures import RunReport
from headway.sim.plan_log import PlanLog
from headway.sim.plot import write_plot
from headway.sim.policies import check_policy
from headway.sim.report import tables, to_json
from headway.sim.run import simulate as run_one
from headway.sim.scenario import Scenario
from headway.sim.scenario_file import find_scenario, load_scenario, shipped_names
from headway.sim.world import Watch

_WIDTH_OF_FILES = 180


def simulate(
    scenario: Annotated[
        list[str] | None,
        typer.Argument(help="TOML files, or names of shipped scenarios; without any: list those."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="What to compare; may be repeated.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", min=0, help="May be repeated; else the file's.")
    ] = None,
    settings: SetOption = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="CSV file that replaces the arrivals of the first stream."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Write all figures as JSON.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the course as .png, or a page as .html.")
    ] = None,
    plan_log: Annotated[
        Path | None, typer.Option("--plan-log", help="Write each decision of the one run.")
    ] = None,
) -> None:
    """Run scenarios in virtual time, each under every policy and seed."""
    if not scenario:
        typer.echo("\n".join(shipped_names()))
        return
    policies = policy if policy else ["headway"]
    for name in policies:
        check_policy(name)
    values = overrides(settings, {})
    loaded = [load_scenario(find_scenario(name), values, trace=trace) for name in scenario]
    plans = [
        (each, name, number)
        for each in loaded
        for name in policies
        for number in (seed if seed else [each.seed])
    ]
    if plan_log is not None and len(plans) != 1:
        raise ConfigError("--plan-log", f"is of one run, not of {len(plans)}")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)
    runs = _run_all(plans, plan_log)
    for each in loaded:
        console.print(f"{each.name}: {each.shows}", soft_wrap=True)
        for shown in tables([run for run in runs if run.scenario == each.name]):
            console.print(shown)
    if output is not None:
        output.write_bytes(to_json(runs))
    if plot is not None:
        write_plot(runs, plot)


def _run_all(plans: Sequence[tuple[Scenario, str, int]], plan_log: Path | None) -> list[RunReport]:
    runs: list[RunReport] = []
    for scenario, policy, seed in plans:
        with _bar(scenario, policy, seed) as watch:
            if plan_log is None:
                runs.append(run_one(scenario, policy, seed, watch=watch))
                continue
            with PlanLog(plan_log.open("w", encoding="utf-8")) as log:
                runs.append(run_one(scenario, policy, seed, watch=watch, plan_log=log))
    return runs


@contextmanager
def _bar(scenario: Scenario, policy: str, seed: int) -> Iterator[Watch]:
    """Show how far a run has come, on a terminal's stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    ends = TextColumn(
        "{task.completed:.0f} of {task.total:.0f} virtual s, {task.fields[ended]} ended"
    )
    with Progress(*columns, ends, console=Console(stderr=True), transient=True) as progress:
        title = f"{scenario.name} {policy} {seed}"
        task = progress.add_task(title, total=scenario.duration_s, ended=0)

        def watch(now: float, ended: int) -> None:
            progress.update(task, completed=min(now, scenario.duration_s), ended=ended)

        yield watch
