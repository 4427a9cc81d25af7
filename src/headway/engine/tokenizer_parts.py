"""What does a model's folder or file say about its text?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import tokenizers

# Ends of a turn. Many models end an answer with one of these without naming it as end of text.
_CHAT_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerParts:
    """A tokenizer with what belongs to it, wherever it was read from."""

    tokenizer: tokenizers.Tokenizer
    bos_token_id: int | None
    eos_token_ids: frozenset[int]
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """By the name that chat templates use: `bos_token`, `eos_token`, ..."""
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    """Jinja sources by name; `default` is the usual one."""


def chat_end_ids(tokenizer: tokenizers.Tokenizer) -> Iterable[int]:
    """Yield the ids of control tokens that end a turn."""
    for token_id, token in tokenizer.get_added_tokens_decoder().items():
        if token.special and token.content in _CHAT_ENDS:
            yield token_id
