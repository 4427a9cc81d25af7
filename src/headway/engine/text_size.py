"""Is a prompt too long, judged by its size alone?

Tokenizing megabytes takes seconds. When no token can stand for more than b bytes of text, a text
of more than b x limit bytes has more than `limit` tokens, and need not be tokenized to know it.
"""

import json
import sys
from typing import Any

import tokenizers
from tokenizers import models

UNBOUNDED = sys.maxsize
# NFC makes text shorter, at most by this factor (the worst is U+0390: seven bytes become two).
_NFC_SHRINK = 4
_KEEPING_NORMALIZERS = {"NFC", "Prepend", "Replace"}
_KEEPING_PRE_TOKENIZERS = {"ByteLevel", "Digits", "Split", "Metaspace"}


def max_bytes_per_token(tokenizer: tokenizers.Tokenizer) -> int:
    """Return the most bytes of text that one token stands for; UNBOUNDED when there is no such.

    There is none when the tokenizer may drop or merge text of any length: a special token that
    swallows the spaces around it, unknown characters fused into one token, a normalizer that
    removes things. Characters that a byte-level vocabulary lacks altogether are dropped too, but
    count as text here: a prompt that consists of them is refused for its size.
    """
    normalizers = _steps(tokenizer.normalizer, "normalizers")
    pre_tokenizers = _steps(tokenizer.pre_tokenizer, "pretokenizers")
    added = tokenizer.get_added_tokens_decoder().values()
    unbounded = (
        _fuses_unknown(tokenizer)
        or any(token.lstrip or token.rstrip for token in added)
        or not all(map(_keeps_length, normalizers))
        or not all(map(_keeps_text, pre_tokenizers))
    )
    if unbounded:
        return UNBOUNDED
    by_character = any(step["type"] == "ByteLevel" for step in pre_tokenizers)
    in_added = {token.content for token in added}
    longest = 1
    for token in tokenizer.get_vocab(with_added_tokens=True):
        # In a byte-level vocabulary each character of a token is a byte; added tokens are text.
        one_each = by_character and token not in in_added
        longest = max(longest, len(token) if one_each else len(token.encode()))
    shrink = _NFC_SHRINK if any(step["type"] == "NFC" for step in normalizers) else 1
    return longest * shrink


def _steps(part: Any, members: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    state: dict[str, Any] = json.loads(part.__getstate__())
    return state[members] if state["type"] == "Sequence" else [state]


def _keeps_length(step: dict[str, Any]) -> bool:
    """Tell whether a normalizer shortens text by a known factor at most."""
    if step["type"] == "Replace":
        pattern = step["pattern"].get("String")
        return pattern is not None and len(pattern.encode()) <= len(step["content"].encode())
    return step["type"] in _KEEPING_NORMALIZERS


def _keeps_text(step: dict[str, Any]) -> bool:
    if step["type"] == "Split":
        return bool(step["behavior"] != "Removed")
    return step["type"] in _KEEPING_PRE_TOKENIZERS


def _fuses_unknown(tokenizer: tokenizers.Tokenizer) -> bool:
    """Tell whether unknown characters, however many, may become one token."""
    model = tokenizer.model
    if not isinstance(model, models.BPE):
        return True
    if model.unk_token is None or not model.fuse_unk:
        return False
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    return not (model.byte_fallback and all(f"<0x{byte:02X}>" in vocab for byte in range(256)))
