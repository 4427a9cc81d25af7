"""How long does a step really take?

The truth of a simulation, which the engine's predictor only learns. The named model is QoServe's
(ASPLOS'26 artifact) for Llama-3-8B on an A100: two affine regimes, joined at 512 tokens. Above 512
its decode coefficient is negative; the sum stays positive, for a decode is a token, too.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import exp
from pathlib import Path
from random import Random
from typing import Any

from headway.core.predictor import StepFeatures
from headway.errors import ConfigError

LEAST_STEP_S, MOST_STEP_S = 1e-6, 1e6
"""No step of any machine takes less or more; time has to go on, and steps are many."""
MOST_COEFFICIENT = 1e9
PATH = "nodes.cost_model"


@dataclass(frozen=True, slots=True)
class Affine:
    """Seconds, and seconds per unit of each feature; the names are `StepCoefficients`'.

    Unlike those, which a scheduler plans with, a coefficient may be negative.
    """

    base_s: float
    token_s: float = 0.0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    decode_context_s: float = 0.0
    prefill_context_s: float = 0.0
    prefill_work_s: float = 0.0
    prefill_token_s: float = 0.0
    """Per prefilled token, beside `token_s`."""

    def time_s(self, features: StepFeatures) -> float:
        """Return the seconds that a step takes."""
        return (
            self.base_s
            + self.token_s * features.num_tokens
            + self.decode_s * features.num_decodes
            + self.prefill_s * features.num_prefills
            + self.decode_context_s * features.decode_context
            + self.prefill_context_s * features.prefill_context
            + self.prefill_work_s * features.prefill_work
            + self.prefill_token_s * (features.num_tokens - features.num_decodes)
        )


@dataclass(frozen=True, slots=True)
class CostModel:
    """Affine regimes: by the number of tokens, or, without a bound, the slowest counts."""

    regimes: tuple[Affine, ...]
    small_up_to: int | None = None
    """Up to so many tokens the first regime holds, beyond it the second."""

    def time_s(self, features: StepFeatures) -> float:
        """Return the seconds that a step takes, without noise.

        Raises ConfigError for a step that no machine can do: coefficients may be negative, so the
        sum may be, too.
        """
        seconds = self._seconds(features)
        if not LEAST_STEP_S <= seconds <= MOST_STEP_S:
            step = f"{features.num_decodes} decodes among {features.num_tokens} tokens"
            possible = f"{LEAST_STEP_S:g} to {MOST_STEP_S:g} s are possible"
            raise ConfigError(PATH, f"a step of {step} would take {seconds:g} s; {possible}")
        return seconds

    def _seconds(self, features: StepFeatures) -> float:
        if len(self.regimes) == 1:
            return self.regimes[0].time_s(features)
        if self.small_up_to is None:
            return max(regime.time_s(features) for regime in self.regimes)
        return self.regimes[features.num_tokens > self.small_up_to].time_s(features)


A100_LLAMA3_8B = CostModel(
    regimes=(
        Affine(
            base_s=0.0149,
            token_s=58.8e-6,
            prefill_token_s=22.5e-6,
            decode_s=36.3e-6,
            decode_context_s=0.111e-6,
            prefill_context_s=0.755e-6,
        ),
        Affine(
            base_s=0.0050,
            token_s=27.2e-6,
            prefill_token_s=68.6e-6,
            decode_s=-41.4e-6,
            decode_context_s=0.166e-6,
            prefill_context_s=2.73e-6,
        ),
    ),
    small_up_to=512,
)
COST_MODELS = {"a100-llama3-8b": A100_LLAMA3_8B}
_NAMES = tuple(field.name for field in fields(Affine))


def cost_model(source: str | Mapping[str, Any]) -> CostModel:
    """Return the model of a name, a JSON or TOML file, or coefficients. Raises ConfigError.

    A file holds the fields of `StepCoefficients`, or a list of such tables under `regimes`, the
    slowest of which counts.
    """
    if isinstance(source, Mapping):
        return CostModel((_affine(source, PATH),))
    if source in COST_MODELS:
        return COST_MODELS[source]
    if not source.endswith((".json", ".toml")):
        known = ", ".join(COST_MODELS)
        raise ConfigError(PATH, f"no model {source!r}; there are {known}, or give a file")
    return _from_file(Path(source))


def _from_file(path: Path) -> CostModel:
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"not valid: {error}") from error
    regimes = document.get("regimes", document) if isinstance(document, dict) else document
    if isinstance(regimes, dict):
        return CostModel((_affine(regimes, str(path)),))
    if not isinstance(regimes, list) or not regimes:
        raise ConfigError(str(path), "must be a table of coefficients, or a list of such tables")
    return CostModel(tuple(_affine(each, f"{path}[{index}]") for index, each in enumerate(regimes)))


def _affine(value: object, at: str) -> Affine:
    if not isinstance(value, Mapping):
        raise ConfigError(at, "must be a table of coefficients")
    for key, number in value.items():
        if key not in _NAMES:
            raise ConfigError(f"{at}.{key}", f"unknown key; allowed: {', '.join(_NAMES)}")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(f"{at}.{key}", f"must be a number, got {number!r}")
        if not abs(number) <= MOST_COEFFICIENT:
            text = f"must be a finite number of at most {MOST_COEFFICIENT:g}, got {number}"
            raise ConfigError(f"{at}.{key}", text)
    if "base_s" not in value or value["base_s"] < 0:
        raise ConfigError(f"{at}.base_s", "must be given, and at least 0")
    return Affine(**{key: float(number) for key, number in value.items()})


class StepNoise:
    """Factors on the steps' times: log-normal of mean 1, and now and then a spike."""

    def __init__(self, rng: Random, sigma: float, probability: float, factor: float) -> None:
        self._rng = rng
        self._sigma = sigma
        self._shift = -sigma * sigma / 2
        self._probability = probability
        self._factor = factor

    def next(self) -> float:
        """Return the factor of the next step."""
        factor = 1.0
        if self._sigma > 0:
            factor = exp(self._rng.gauss(self._shift, self._sigma))
        if self._probability > 0 and self._rng.random() < self._probability:
            factor *= self._factor
        return factor
