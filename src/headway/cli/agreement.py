"""Does the simulator say what the embedded engine does?

One load is offered twice: to gateway and engine for real, and in virtual time to the same core on
nodes whose steps take the fitted time.
"""

import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from headway.bench.fit import LoggedStep, StepFit, fit_steps, read_log, to_toml
from headway.bench.isolation import (
    BULK_ALONE,
    FLOOD,
    UNLOADED,
    IsolationReport,
    PhaseReport,
    measure,
)
from headway.bench.load import Load, Shape, arrival_times
from headway.bench.summary import TierSummary
from headway.cli.flood_load import flood_load
from headway.cli.kept import tell_kept
from headway.cli.outputs import check_outputs, writing
from headway.cli.settings import SetOption, overrides
from headway.cli.stacks import OURS, own_runs
from headway.cli.tell import tell
from headway.clock import MonotonicClock
from headway.config import load_config
from headway.config.load import override
from headway.errors import ConfigError
from headway.sim.measures import RunReport, TierReport
from headway.sim.run import simulate
from headway.sim.scenario import Scenario
from headway.sim.scenario_file import parse_scenario

ENGINE = {
    "engine.max_num_seqs": 32,
    "engine.max_num_batched_tokens": 512,
    "engine.block_size": 16,
    "engine.num_kv_blocks": 2048,
}
"""The engine that both are; a setting of the command line wins."""
FIT_S = 50.0
"""Of each of the loads that the fit is made on."""
TTFT_WITHIN, RATE_WITHIN = 0.25, 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure, as it was on the engine and in the simulator."""

    name: str
    engine: float
    simulated: float
    within: float
    """By how much of the engine's the other may differ."""

    @property
    def error(self) -> float:
        """The difference as a share of the engine's."""
        return self.simulated / self.engine - 1

    @property
    def agrees(self) -> bool:
        """Whether the difference is as small as asked."""
        return abs(self.error) <= self.within


def agreement(  # noqa: PLR0913  (typer makes an option of each parameter)
    duration_s: float = typer.Option(120.0, "--duration", min=5.0, help="Seconds of the load."),
    warmup_s: float = typer.Option(30.0, "--warmup", min=0.0, help="Uncounted seconds of it."),
    grace_s: float = typer.Option(90.0, "--grace", min=0.0, help="Longest wait after it."),
    bulk_callers: int = typer.Option(48, min=1, help="Bulk callers in a closed loop."),
    critical_every_s: float = typer.Option(
        1.0, "--critical-every", min=0.01, help="Mean seconds between critical requests."
    ),
    repeat: int = typer.Option(1, min=1, help="Repeats of the real run; medians are compared."),
    seed: int = typer.Option(0, help="Seed of the arrivals."),
    log: Annotated[
        Path | None,
        typer.Option("--log", help="Fit this step log instead of running each load alone."),
    ] = None,
    settings: SetOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
) -> None:
    """Compare the simulator with our own engine under a flood of bulk work.

    Fits the time of a step first, on critical and on bulk work alone: the attention of the embedded
    engine is padded to the longest context of a step, so its cost depends on how alike those are.
    Ends with 1 when a figure does not agree.
    """
    check_outputs({"--json": json_file}, [] if log is None else [log])
    chosen = ENGINE | overrides(settings, {})
    _check_engine(chosen)
    load = flood_load(
        bulk_callers=bulk_callers,
        critical_every_s=critical_every_s,
        duration_s=duration_s,
        warmup_s=warmup_s,
        grace_s=grace_s,
        seed=seed,
    )
    for option, seconds in (("--duration", duration_s), ("--warmup", warmup_s)):
        if seconds % 1 != 0:
            raise ConfigError(option, "must be whole seconds: the simulator counts by second")
    for number in range(seed, seed + repeat):
        _arrivals(load, number)
    steps = _each_alone(load, chosen) if log is None else read_log(log)
    fit = fit_steps(steps)
    console = Console()
    console.print(to_toml(fit), end="", highlight=False)
    figures: list[Figure] = []
    ended: list[PhaseReport] = []
    try:
        _measure((FLOOD,), load, chosen, repeat, ended)
    finally:
        tell_kept(len(ended), repeat, "repeats")
        if ended:
            real = IsolationReport(load=load, phases=tuple(ended))
            figures += compare(real, simulated_runs(real, fit, chosen))
            console.print(table(figures))
            if json_file is not None:
                with writing("--json", json_file):
                    text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
                    json_file.write_bytes(text)
    if not all(figure.agrees for figure in figures):
        sys.exit(1)


def _check_engine(settings: Mapping[str, object]) -> None:
    """Refuse what the engine or the simulator would, before minutes of measuring."""
    engine = load_config(None, settings).engine
    for key in ENGINE:
        if getattr(engine, key.removeprefix("engine.")) != settings[key] or settings[key] is None:
            raise ConfigError(key, "must be set by itself and to a number: the simulator needs it")


def _measure(
    phases: tuple[str, ...],
    load: Load,
    settings: Mapping[str, object],
    repeat: int,
    ended: list[PhaseReport],
) -> None:
    """Run these phases of our own stack; what each showed is added to `ended`."""
    runs = [replace(run, phases=phases) for run in own_runs(settings) if run.label == OURS]
    clock = MonotonicClock()
    asyncio.run(measure(runs, load, clock, watch=tell, repeat=repeat, ended=ended))


def _each_alone(load: Load, settings: Mapping[str, object]) -> list[LoggedStep]:
    """Return the steps of our own engine under critical and under bulk work alone."""
    with tempfile.TemporaryDirectory(prefix="headway-agreement-") as name:
        log = Path(name) / "steps.jsonl"
        alone = replace(load, duration_s=FIT_S, warmup_s=0.0)
        _measure((UNLOADED, BULK_ALONE), alone, {**settings, "engine.step_log": str(log)}, 1, [])
        return read_log(log)


def compare(real: IsolationReport, simulated: Sequence[RunReport]) -> list[Figure]:
    """Return the figures, medians of the repeats. Raises ConfigError for one not measured."""
    critical, bulk = (_real(real, shape) for shape in (real.load.critical, real.load.bulk))
    ttfts = [_tier(report, real.load.critical.tier).ttft_s for report in simulated]
    return [
        _figure("critical TTFT p50, s", critical.ttft_p50_s, [t.p50 for t in ttfts], TTFT_WITHIN),
        _figure("critical TTFT p99, s", critical.ttft_p99_s, [t.p99 for t in ttfts], TTFT_WITHIN),
        _figure(
            "output tokens/s",
            critical.tokens_per_s + bulk.tokens_per_s,
            [report.tokens_per_s for report in simulated],
            RATE_WITHIN,
        ),
    ]


def table(figures: Sequence[Figure]) -> Table:
    """Return the figures for the terminal."""
    shown = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("", "engine", "simulator", "differs by", "asked", ""):
        shown.add_column(name, justify="right" if name else "left")
    for figure in figures:
        shown.add_row(
            figure.name,
            f"{figure.engine:.3g}",
            f"{figure.simulated:.3g}",
            f"{figure.error:+.0%}",
            f"{figure.within:.0%}",
            "agrees" if figure.agrees else "differs",
        )
    return shown


def _figure(
    name: str, engine: float | None, simulated: Sequence[float | None], within: float
) -> Figure:
    known = [value for value in simulated if value is not None]
    if not engine or not known:
        raise ConfigError("--duration", f"too short: {name} was not measured")
    return Figure(name=name, engine=engine, simulated=median(known), within=within)


def _real(report: IsolationReport, shape: Shape) -> TierSummary:
    summary = report.middle(OURS, FLOOD, shape.tier)
    if summary is None or summary.num_finished == 0:
        raise ConfigError("--duration", f"too short: no {shape.tier} request was answered")
    return summary


def _tier(report: RunReport, name: str) -> TierReport:
    return next(tier for tier in report.tiers if tier.tier == name)


def simulated_runs(
    real: IsolationReport, fit: StepFit, settings: Mapping[str, object]
) -> list[RunReport]:
    """Offer the load of `real` in virtual time, once for each repeat."""
    load = real.load
    repeats = 1 + max(phase.repeat for phase in real.phases)
    reports = []
    with tempfile.TemporaryDirectory(prefix="headway-agreement-") as name:
        for seed in range(load.seed, load.seed + repeats):
            scenario = _scenario(real, fit, settings, Path(name), seed)
            reports.append(simulate(scenario, "headway", seed))
    return reports


def _scenario(
    real: IsolationReport,
    fit: StepFit,
    settings: Mapping[str, object],
    folder: Path,
    seed: int,
) -> Scenario:
    load = real.load
    times = _arrivals(load, seed)
    critical, bulk = _real(real, load.critical), _real(real, load.bulk)
    rows = "".join(f"{at},{_prompt(critical)},{load.critical.num_output_tokens}\n" for at in times)
    trace = folder / f"critical-{seed}.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows, encoding="utf-8")
    raw: dict[str, Any] = {
        "name": "agreement",
        "duration_s": load.duration_s,
        "warmup_s": load.warmup_s,
        "drain_s": load.grace_s,
        "nodes": {
            "max_num_seqs": settings["engine.max_num_seqs"],
            "max_num_batched_tokens": settings["engine.max_num_batched_tokens"],
            "block_size": settings["engine.block_size"],
            "num_blocks": settings["engine.num_kv_blocks"],
            "cost_model": asdict(fit.coefficients),
            "noise": fit.noise,
            "spike_probability": 0.0,
            "keep_targets": False,
        },
        "tiers": {tier: {"queue_timeout_s": None} for tier in ("critical", "normal", "bulk")},
        "streams": [
            {
                "name": "critical",
                "tier": load.critical.tier,
                "start_s": times[0],
                "arrivals": {"kind": "trace", "file": str(trace)},
            },
            {
                "name": "bulk",
                "tier": load.bulk.tier,
                "arrivals": {"kind": "closed", "callers": load.bulk_callers},
                "prompt_tokens": _prompt(bulk),
                "output_tokens": load.bulk.num_output_tokens,
            },
        ],
    }
    for key, value in settings.items():
        if key.partition(".")[0] == "tiers":
            override(raw, key, value)
    return parse_scenario(raw, folder)


def _arrivals(load: Load, seed: int) -> list[float]:
    """Return when critical requests come. Raises ConfigError when none does."""
    assert load.critical_every_s is not None, "there is critical work to be compared"
    times = arrival_times(seed, load.critical_every_s, load.duration_s)
    if not times:
        raise ConfigError("--critical-every", "no critical request comes within --duration")
    return times


def _prompt(summary: TierSummary) -> int:
    """Return the length that the prompts turned out to have."""
    if summary.prompt_tokens_mean is None:
        raise ConfigError("--duration", "too short: no prompt was counted")
    return round(summary.prompt_tokens_mean)
