"""How does an answer to a completion look, whole and in chunks?"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from headway.wire.logprobs import CompletionLogprobs
from headway.wire.usage import Usage


class CompletionChoice(Struct, frozen=True):
    """One answer, or in a stream what it gained. `index` counts over all prompts, n for each."""

    index: int
    text: str
    finish_reason: str | None = None
    logprobs: CompletionLogprobs | None = None
    stop_reason: str | int | None = None
    """vLLM's: the stop text or token id that ended the answer, if one did."""
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class Completion(Struct, frozen=True):
    """The whole answer, or one event of a stream. The usage event of a stream has no choices."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    object: Literal["text_completion"] = "text_completion"
    service_tier: str | UnsetType = UNSET
    system_fingerprint: str | None = None
    usage: Usage | UnsetType = UNSET
