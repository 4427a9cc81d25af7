"""How many tokens did an answer take?"""

from msgspec import Struct


class PromptTokensDetails(Struct, frozen=True):
    """What the prompt's count is made of."""

    cached_tokens: int
    """Prompt tokens that the prefix cache spared."""


class Usage(Struct, frozen=True):
    """Token counts; the prompt is counted once, generated tokens over all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None


def usage_of(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Usage:
    """Return the usage with its total."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens),
    )
