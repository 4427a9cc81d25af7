"""What does the engine know of a request, and what does it answer?"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from enum import StrEnum

from headway.engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One request as the engine takes it. `rank` is the tier's urgency, 0 is most urgent."""

    request_id: str
    prompt_token_ids: Seq[int]
    """Not changed by anybody as long as the request lives."""
    params: SamplingParams
    rank: int = 1
    tenant: str = ""
    weight: float = 1.0
    deadline_s: float | None = None
    """Seconds from arrival by which the answer is wanted; None: no deadline."""
    cache_salt: str = ""
    """Narrows prefix sharing further than the tenant does."""


class FinishReason(StrEnum):
    """Why a choice ended; the first two are OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A drawn token with its log-probability and those of the most probable tokens."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """What one of the n answers gained in this iteration. Joined deltas are the whole answer."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended it, if one did."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What a request gained in one iteration, over all its choices."""

    request_id: str
    choices: tuple[Choice, ...]
    finished: bool
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens that the prefix cache spared."""
    num_output_tokens: int
    """Tokens generated so far, over all choices."""
    queue_s: float = 0.0
    """Seconds from arrival until it first got blocks."""
    num_preemptions: int = 0
    """How often it lost its blocks so far, over all choices."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer, as `LLM.generate` returns it."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """All answers to one prompt, as `LLM.generate` returns them."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    completions: tuple[Completion, ...] = field(default_factory=tuple)
    num_cached_tokens: int = 0
