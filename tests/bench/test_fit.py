"""Does the fit find the step time that made a log, and refuse what is no log?"""

from pathlib import Path
from random import Random

import msgspec
import pytest

from headway.bench.fit import MIN_STEPS, LoggedStep, fit_steps, read_log, to_toml
from headway.core.predictor import StepCoefficients, StepFeatures
from headway.errors import ConfigError
from headway.sim.cost_model import cost_model

TRUE = StepCoefficients(
    base_s=0.010,
    token_s=0.0004,
    decode_s=0.0002,
    prefill_s=0.001,
    decode_context_s=1e-6,
    prefill_context_s=2e-7,
    prefill_work_s=3e-8,
)


def features_of(random: Random) -> StepFeatures:
    """Any step that an engine may run."""
    decodes = [(1, random.randrange(1, 1500)) for _ in range(random.randrange(1, 32))]
    prefills = [
        (random.randrange(2, 300), random.randrange(0, 1000)) for _ in range(random.randrange(0, 3))
    ]
    return StepFeatures.of([*decodes, *prefills])


def logged(
    count: int, noise: float, *, pause_every: int = 0, more: bool = True
) -> list[LoggedStep]:
    """Return steps as an engine of the true coefficients would log them."""
    random, now, steps = Random(7), 5.0, []
    for index in range(count):
        features = features_of(random)
        seconds = TRUE.time_s(features) * random.lognormvariate(0, noise)
        if pause_every and index % pause_every == 0:
            seconds *= 20
        values = {name: getattr(features, name) for name in StepFeatures._fields}
        steps.append(LoggedStep(at_s=now, step_s=seconds, more=more, **values))
        now += seconds
    return steps


def write_log(file: Path, steps: list[LoggedStep]) -> None:
    """Write them as an engine does."""
    file.write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in steps))


def test_the_coefficients_are_found() -> None:
    fit = fit_steps(logged(2000, 0.0))
    for name in StepCoefficients.__dataclass_fields__:
        assert getattr(fit.coefficients, name) == pytest.approx(getattr(TRUE, name), rel=0.02)
    assert fit.mean_error < 0.001


def test_noise_and_pauses_are_told_apart_from_the_model() -> None:
    fit = fit_steps(logged(4000, 0.05, pause_every=100))
    probe = StepFeatures.of([(256, 0), (1, 500)])
    assert fit.coefficients.time_s(probe) == pytest.approx(TRUE.time_s(probe), rel=0.03)
    assert fit.noise == pytest.approx(0.05, rel=0.25)
    assert fit.p99_ratio > 1.1


def test_time_without_work_is_not_taken_for_a_step() -> None:
    steps = [
        msgspec.structs.replace(step, more=i % 2 == 0) for i, step in enumerate(logged(999, 0))
    ]
    late = [
        msgspec.structs.replace(step, at_s=step.at_s + 100 * (index // 2))
        for index, step in enumerate(steps)
    ]
    assert fit_steps(late).mean_error < 0.001


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match="too few"):
        fit_steps(logged(MIN_STEPS, 0.0))
    with pytest.raises(ConfigError, match="too few"):
        fit_steps(logged(2000, 0.0, more=False))


def test_a_line_that_is_no_step_is_named(tmp_path: Path) -> None:
    log = tmp_path / "steps.jsonl"
    lines = [msgspec.json.encode(step) for step in logged(2, 0.0)]
    log.write_bytes(b"\n".join([*lines, b'{"at_s": 1}']))
    with pytest.raises(ConfigError, match=r"steps\.jsonl:3"):
        read_log(log)
    log.write_bytes(b"\n".join(lines))
    assert read_log(log) == logged(2, 0.0)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_tokens", 0, "not a step: .*num_tokens"),
        ("num_decodes", -1, "not a step: .*num_decodes"),
        ("prefill_work", -1.0, "not a step: .*prefill_work"),
        ("at_s", 1.0, "begins before the step above it"),
    ],
)
def test_an_impossible_step_is_refused_by_its_line(
    tmp_path: Path, key: str, value: float, message: str
) -> None:
    log = tmp_path / "steps.jsonl"
    first, second = logged(2, 0.0)
    lines = [first, msgspec.structs.replace(second, **{key: value})]
    write_log(log, lines)
    with pytest.raises(ConfigError, match=rf"steps\.jsonl:2: {message}"):
        read_log(log)


def test_a_log_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"steps\.jsonl: cannot be read: No such file"):
        read_log(tmp_path / "steps.jsonl")


def test_steps_that_take_no_time_are_refused() -> None:
    steps = [msgspec.structs.replace(step, at_s=5.0) for step in logged(300, 0.0)]
    with pytest.raises(ConfigError, match="steps: the one that begins at 5"):
        fit_steps(steps)


def test_steps_that_only_their_prompts_explain_are_refused() -> None:
    """All others take next to nothing: no fit foretells a share of that."""
    steps, now = [], 0.0
    for step in logged(600, 0.0):
        steps.append(msgspec.structs.replace(step, at_s=now))
        now += 1.0 * step.num_prefills + 1e-30
    with pytest.raises(ConfigError, match="steps: the"):
        fit_steps(steps)


def test_the_simulator_reads_the_file(tmp_path: Path) -> None:
    fit = fit_steps(logged(1000, 0.02))
    file = tmp_path / "model.toml"
    file.write_text(to_toml(fit), encoding="utf-8")
    probe = StepFeatures.of([(100, 0), (1, 700)])
    simulated = cost_model(str(file)).time_s(probe)
    assert simulated == pytest.approx(fit.coefficients.time_s(probe), rel=1e-4)
