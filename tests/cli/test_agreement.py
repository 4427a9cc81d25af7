"""Are the engine's figures compared with those of the same load in the simulator?"""

from dataclasses import replace

import pytest

from headway.bench.fit import StepFit
from headway.bench.isolation import FLOOD, IsolationReport
from headway.bench.load import Load
from headway.cli.agreement import ENGINE, compare, simulated_runs
from headway.cli.flood_load import flood_load
from headway.cli.stacks import OURS
from headway.core.predictor import StepCoefficients
from headway.errors import ConfigError
from tests.bench.fake_report import phase, summary

LOAD = Load(bulk_callers=40, critical_every_s=1.0, duration_s=30.0, warmup_s=10.0, grace_s=10.0)
FIT = StepFit(
    coefficients=StepCoefficients(0.02, token_s=0.0004, decode_s=0.001, prefill_s=0.005),
    noise=0.05,
    mean_error=0.07,
    p99_ratio=1.3,
    num_steps=1000,
)


def real(ttft_p99_s: float, tokens_per_s: float, repeats: int = 1) -> IsolationReport:
    """What an engine is to have shown."""
    critical = summary(ttft_p99_s=ttft_p99_s, tokens_per_s=30.0)
    bulk = replace(
        summary(ttft_p99_s=20.0, tokens_per_s=tokens_per_s - 30.0), prompt_tokens_mean=400.0
    )
    phases = tuple(
        phase(OURS, FLOOD, index, critical=critical, bulk=bulk) for index in range(repeats)
    )
    return IsolationReport(load=LOAD, phases=phases)


def test_the_same_load_is_offered_in_virtual_time() -> None:
    first, second = simulated_runs(real(0.2, 200.0, repeats=2), FIT, ENGINE)
    for report in (first, second):
        critical, _, bulk = report.tiers
        assert 10 <= critical.num_submitted <= 35, "one a second, from 10 s to 30 s"
        assert critical.num_completed == critical.num_submitted
        assert bulk.num_completed > 0
        assert report.limit[-1] == 32
    assert first != second, "repeats differ in their arrivals"


def test_figures_agree_within_what_is_asked() -> None:
    runs = simulated_runs(real(0.2, 200.0), FIT, ENGINE)
    critical = runs[0].tiers[0].ttft_s
    assert critical.p99 is not None
    figures = compare(real(critical.p99 * 1.2, runs[0].tokens_per_s * 1.3), runs)
    _, p99, rate = figures
    assert (p99.agrees, rate.agrees) == (True, False)
    assert p99.error == pytest.approx(1 / 1.2 - 1)
    assert rate.error == pytest.approx(1 / 1.3 - 1)


def test_what_was_not_measured_is_named() -> None:
    runs = simulated_runs(real(0.2, 200.0), FIT, ENGINE)
    nothing = replace(summary(ttft_p99_s=None, tokens_per_s=30.0))
    report = IsolationReport(
        load=LOAD, phases=(phase(OURS, FLOOD, critical=nothing, bulk=nothing),)
    )
    with pytest.raises(ConfigError, match="TTFT p50"):
        compare(report, runs)


def test_a_load_of_which_nothing_counts_is_refused() -> None:
    with pytest.raises(ConfigError, match="--warmup"):
        flood_load(
            duration_s=30.0,
            warmup_s=30.0,
            grace_s=0.0,
            bulk_callers=1,
            critical_every_s=1.0,
            seed=0,
        )
