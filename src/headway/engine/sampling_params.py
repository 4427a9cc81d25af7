"""How are the next tokens of one request drawn, and when does it stop?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from headway.errors import InvalidRequestError

MAX_LOGPROBS = 20
MAX_N = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling of one request; names are vLLM's, ranges OpenAI's where it has the field.

    Raises InvalidRequestError, naming the field, for a value out of range.
    """

    n: int = 1
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: all tokens."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    max_tokens: int | None = 16
    """None: up to the model's context."""
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    """None: no log-probabilities; k: the drawn token's and those of the k most probable."""
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        """Check every range."""
        _check_int("n", self.n, 1, MAX_N)
        _check_float("temperature", self.temperature, 0.0, 2.0)
        _check_float("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _check_int("top_k", self.top_k, -1, 2**31)
        _check_float("min_p", self.min_p, 0.0, 1.0)
        _check_float("repetition_penalty", self.repetition_penalty, 0.01, 10.0)
        _check_float("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_float("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        for token_id, bias in self.logit_bias.items():
            _check_float(f"logit_bias.{token_id}", bias, -100.0, 100.0)
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1, 2**31)
        limit = 2**31 if self.max_tokens is None else self.max_tokens
        _check_int("min_tokens", self.min_tokens, 0, limit)
        if self.logprobs is not None:
            _check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if any(not text for text in self.stop):
            raise InvalidRequestError("stop must not hold an empty string", param="stop")


def _check_int(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{name} must be an integer", param=name, code="invalid_type")
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} must be from {low} to {high}, got {value}", param=name)


def _check_float(
    name: str, value: float, low: float, high: float, *, open_low: bool = False
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequestError(f"{name} must be a number", param=name, code="invalid_type")
    if not isfinite(value) or not low <= value <= high or (open_low and value == low):
        edge = "above" if open_low else "from"
        text = f"{name} must be {edge} {low} to {high}"
        raise InvalidRequestError(text, param=name)
