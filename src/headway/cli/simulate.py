"""How is a simulation run from the command line?"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headway.cli.kept import tell_kept
from headway.cli.outputs import check_outputs, writing
from headway.cli.scenario_values import scenario_value
from headway.cli.settings import SetOption, overrides
from headway.errors import ConfigError
from headway.sim.measures import RunReport
from headway.sim.plan_log import PlanLog
from headway.sim.plot import check_plot, write_plot
from headway.sim.policies import check_policy, knobs_of
from headway.sim.report import notes, tables, to_json
from headway.sim.run import check_run
from headway.sim.run import simulate as run_one
from headway.sim.scenario import MOST_SEED, Scenario
from headway.sim.scenario_file import find_scenario, further_files, load_scenario, shipped_names
from headway.sim.world import Watch

_WIDTH_OF_FILES = 180
Plan = tuple[Scenario, str, int]
"""A run: of a scenario, under a policy, with a seed."""


def simulate(
    scenario: Annotated[
        list[str] | None,
        typer.Argument(help="TOML files, or names of shipped scenarios; without any: list those."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="What to compare; may be repeated.")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option("--seed", min=0, max=MOST_SEED, help="May be repeated; else the file's."),
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
        if any((policy, seed, settings, trace, output, plot, plan_log)):
            raise ConfigError("scenario", "none is named, and options are for runs of one")
        typer.echo("\n".join(shipped_names()))
        return
    policies = policy if policy else ["headway"]
    _check_distinct("--policy", policies)
    _check_distinct("--seed", seed if seed else [])
    for name in policies:
        check_policy(name)
    values = overrides(settings, {}, scenario_value)
    files = [find_scenario(name) for name in scenario]
    loaded = [load_scenario(file, values, trace=trace) for file in files]
    _check_names(loaded, files)
    _check_knobs(loaded, policies, values)
    plans = [
        (each, name, number)
        for each in loaded
        for name in policies
        for number in (seed if seed else [each.seed])
    ]
    for each, name, _ in plans:
        check_run(each, name)
    if plan_log is not None and len(plans) != 1:
        raise ConfigError("--plan-log", f"is of one run, not of {len(plans)}")
    if plot is not None:
        check_plot(plot, len(plans))
    outputs = {"--output": output, "--plot": plot, "--plan-log": plan_log}
    check_outputs(outputs, [*files, *(file for each in loaded for file in further_files(each))])
    runs: list[RunReport] = []
    try:
        for plan in plans:
            runs.append(_run(plan, plan_log))
    finally:
        tell_kept(len(runs), len(plans))
        if runs:
            _report(loaded, runs, output, plot)


def _check_distinct(option: str, values: Sequence[object]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(option, f"{value} is given twice")


def _check_names(loaded: Sequence[Scenario], files: Sequence[Path]) -> None:
    """Results are told apart by the scenarios' names."""
    seen: dict[str, Path] = {}
    for scenario, file in zip(loaded, files, strict=True):
        if scenario.name in seen:
            text = f"its name is {scenario.name!r}, as that of {seen[scenario.name]}"
            raise ConfigError(str(file), f"{text}: results could not be told apart")
        seen[scenario.name] = file


def _check_knobs(
    loaded: Sequence[Scenario], policies: Sequence[str], values: Mapping[str, object]
) -> None:
    """A file may be for more policies than are run; what is set for this run is meant for them."""
    for scenario in loaded:
        known = [f"policy.{knob}" for name in policies for knob in knobs_of(name, scenario.tiers)]
        for key in values:
            if key.startswith("policy.") and key not in known:
                raise ConfigError(f"--set {key}", f"is not read by {', '.join(policies)}")


def _run(plan: Plan, plan_log: Path | None) -> RunReport:
    scenario, policy, seed = plan
    with _bar(scenario, policy, seed) as watch:
        if plan_log is None:
            return run_one(scenario, policy, seed, watch=watch)
        with (
            writing("--plan-log", plan_log),
            PlanLog(plan_log.open("w", encoding="utf-8")) as log,
        ):
            return run_one(scenario, policy, seed, watch=watch, plan_log=log)


def _report(
    loaded: Sequence[Scenario], runs: Sequence[RunReport], output: Path | None, plot: Path | None
) -> None:
    """Write and print, each whatever becomes of the others."""
    with ExitStack() as last:
        last.callback(_print, loaded, runs)
        if plot is not None:
            last.callback(_write_plot, runs, plot)
        if output is not None:
            with writing("--output", output):
                output.write_bytes(to_json(runs))


def _write_plot(runs: Sequence[RunReport], plot: Path) -> None:
    with writing("--plot", plot):
        write_plot(runs, plot)


def _print(loaded: Sequence[Scenario], runs: Sequence[RunReport]) -> None:
    width = None if sys.stdout.isatty() else _WIDTH_OF_FILES
    # What a scenario says of itself is text, whatever brackets and colons are in it.
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    for scenario in loaded:
        own = [run for run in runs if run.scenario == scenario.name]
        if not own:
            continue
        console.print(f"{scenario.name}: {scenario.shows}", soft_wrap=True)
        for shown in tables(own):
            console.print(shown)
        for note in notes(own):
            console.print(note, soft_wrap=True)


@contextmanager
def _bar(scenario: Scenario, policy: str, seed: int) -> Iterator[Watch]:
    """Show how far a run has come, on a terminal's stderr."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    ends = TextColumn(
        "{task.completed:.0f} of {task.total:.0f} virtual s, {task.fields[ended]} ended"
    )
    with Progress(*columns, ends, console=Console(stderr=True), transient=True) as progress:
        title = f"{scenario.name} {policy} {seed}"
        task = progress.add_task(title, total=scenario.duration_s, ended=0)

        def watch(now: float, ended: int) -> None:
            progress.update(task, completed=min(now, scenario.duration_s), ended=ended)

        yield watch
