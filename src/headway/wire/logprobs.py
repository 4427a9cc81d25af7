"""How are log-probabilities shown in the two APIs?"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from msgspec import Struct

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity and NaN, which JSON cannot hold; the value is vLLM's."""


@dataclass(frozen=True, slots=True)
class TokenText:
    """A token as people see it, with its log-probability."""

    text: str
    data: bytes
    """The token's bytes; of a character made of several tokens, `text` holds U+FFFD."""
    logprob: float


@dataclass(frozen=True, slots=True)
class DrawnToken:
    """A drawn token and the most probable ones at its place, most probable first."""

    token: TokenText
    top: tuple[TokenText, ...] = ()


class TopLogprob(Struct, frozen=True):
    """One of the most probable tokens."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatTokenLogprob(Struct, frozen=True):
    """A drawn token, in the chat API."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """The log-probabilities of a choice, in the chat API."""

    content: list[ChatTokenLogprob] | None
    refusal: None = None


class CompletionLogprobs(Struct, frozen=True):
    """The log-probabilities of a choice, in the completion API: parallel lists over its tokens."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


def clamp_logprob(value: float) -> float:
    """Return a log-probability that JSON can hold."""
    return LOWEST_LOGPROB if isnan(value) else min(max(value, LOWEST_LOGPROB), 0.0)


def chat_logprobs(drawn: Sequence[DrawnToken]) -> ChatLogprobs:
    """Return the chat API's shape."""
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                one.token.text,
                clamp_logprob(one.token.logprob),
                list(one.token.data),
                [TopLogprob(t.text, clamp_logprob(t.logprob), list(t.data)) for t in one.top],
            )
            for one in drawn
        ]
    )


def completion_logprobs(drawn: Sequence[DrawnToken], offset: int) -> CompletionLogprobs:
    """Return the completion API's shape; `offset` is where in the answer the first token starts.

    As in OpenAI's, the drawn token is always among the alternatives, which thus may be one more
    than asked for.
    """
    offsets: list[int] = []
    tops: list[dict[str, float] | None] = []
    for one in drawn:
        offsets.append(offset)
        offset += len(one.token.text)
        top = {t.text: clamp_logprob(t.logprob) for t in one.top}
        top.setdefault(one.token.text, clamp_logprob(one.token.logprob))
        tops.append(top)
    return CompletionLogprobs(
        text_offset=offsets,
        token_logprobs=[clamp_logprob(one.token.logprob) for one in drawn],
        tokens=[one.token.text for one in drawn],
        top_logprobs=tops,
    )
