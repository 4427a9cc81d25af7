"""Which step time explains the steps that an engine logged?

Non-negative least squares on relative errors, because what disturbs a measurement stretches it by a
share. The last fifth of the steps is kept out of the fit and says how good it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from math import log
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from scipy.optimize import nnls

from headway.core.predictor import StepCoefficients
from headway.errors import ConfigError

MIN_STEPS = 200
OUTLIER = 6.0
"""Steps off by this many times the median error are pauses of the machine, not the model's."""
FEATURES = (
    "num_tokens",
    "num_decodes",
    "num_prefills",
    "decode_context",
    "prefill_context",
    "prefill_work",
)
"""Names in the log, in the order of `StepCoefficients` after its base."""


_AtLeast0 = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]


class LoggedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an engine's step log. Times in seconds of the engine's clock."""

    at_s: float
    step_s: _AtLeast0
    more: bool
    """Whether work was left when it ended, so that the next step began at once."""
    num_tokens: Annotated[int, Meta(ge=1)]
    num_decodes: _Count
    num_prefills: _Count
    decode_context: _Count
    prefill_context: _Count
    prefill_work: _AtLeast0

    @property
    def row(self) -> tuple[float, ...]:
        """The features, 1 for the base."""
        return (1.0, *(float(getattr(self, name)) for name in FEATURES))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """Coefficients, and how well they foretell steps that they were not fitted on."""

    coefficients: StepCoefficients
    noise: float
    """Standard deviation of ln(actual / predicted)."""
    mean_error: float
    """Mean of |predicted - actual| / actual."""
    p99_ratio: float
    """99th percentile of actual / predicted."""
    num_steps: int


def read_log(path: Path) -> list[LoggedStep]:
    """Return the steps of a log. Raises ConfigError with the line that is not one."""
    decoder = msgspec.json.Decoder(LoggedStep)
    steps: list[LoggedStep] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            step = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path}:{number}", f"not a step: {error}") from error
        if steps and step.at_s < steps[-1].at_s:
            raise ConfigError(f"{path}:{number}", "begins before the step above it")
        steps.append(step)
    return steps


def fit_steps(steps: Sequence[LoggedStep]) -> StepFit:
    """Fit the time from the start of a step to the start of the next.

    That includes what happens between steps: planning, detokenising, handing out the answers.
    Raises ConfigError when there are fewer than `MIN_STEPS` steps that another follows at once, and
    when their times cannot be explained.
    """
    rows, times = [], []
    for step, following in pairwise(steps):
        if step.more:
            if not following.at_s > step.at_s:
                raise ConfigError("steps", f"the one that begins at {step.at_s} s takes no time")
            rows.append(step.row)
            times.append(following.at_s - step.at_s)
    if len(rows) < MIN_STEPS:
        raise ConfigError("steps", f"{len(rows)} steps are too few, {MIN_STEPS} are needed")
    kept_out = np.arange(len(rows)) % 5 == 4
    features, actual = np.array(rows), np.array(times)
    values = _solve(features[~kept_out], actual[~kept_out])
    predicted = features[kept_out] @ values
    if not (predicted > 0).all():
        raise ConfigError(
            "steps", "the best fit gives some of them no time; is the log a whole one?"
        )
    ratios = [float(ratio) for ratio in actual[kept_out] / predicted]
    return StepFit(
        coefficients=StepCoefficients(*(float(value) for value in values)),
        noise=_spread(ratios),
        mean_error=fmean(abs(1 / ratio - 1) for ratio in ratios),
        p99_ratio=float(np.quantile(ratios, 0.99)),
        num_steps=len(rows),
    )


def to_toml(fit: StepFit) -> str:
    """Return the model as a file that `headway simulate` reads as a `cost_model`."""
    lines = [
        f"# Fitted on {fit.num_steps} steps; mean error {fit.mean_error:.1%}, "
        f"p99 of actual over predicted {fit.p99_ratio:.2f}.",
        f"# Noise for a scenario's `nodes.noise`: {fit.noise:.3f}",
    ]
    for field in fields(StepCoefficients):
        lines.append(f"{field.name} = {getattr(fit.coefficients, field.name):.6g}")
    return "\n".join(lines) + "\n"


def _solve(features: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Return the coefficients, fitted again without what the first fit calls outliers."""
    values = _least_squares(features, actual)
    errors = np.abs(features @ values / actual - 1)
    usual = errors <= max(OUTLIER * float(np.median(errors)), 1e-9)
    return _least_squares(features[usual], actual[usual])


def _least_squares(features: np.ndarray, actual: np.ndarray) -> np.ndarray:
    relative = features / actual[:, None]
    scale = np.maximum(relative.max(axis=0), 1e-12)
    try:
        solution, _ = nnls(relative / scale, np.ones(len(actual)))
    except RuntimeError as error:
        raise ConfigError("steps", f"no fit was found: {error}") from error
    return np.asarray(solution / scale)


def _spread(ratios: Sequence[float]) -> float:
    """Return the deviation of the logarithms, without the outliers."""
    logs = [log(ratio) for ratio in ratios]
    middle = median(logs)
    usual = median(abs(value - middle) for value in logs)
    return pstdev(value for value in logs if abs(value - middle) <= OUTLIER * usual)
