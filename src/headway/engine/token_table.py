"""Which bytes does each token stand for?

Text is put together from bytes and turned into characters once, so that a character made of
several tokens is never shown in halves. Two kinds of vocabulary are known: byte-level BPE, where
each character of a token is one byte under GPT-2's renaming, and SentencePiece, where "▁" is a
space and `<0xE5>` a byte. In the first kind, added tokens stand for their own text.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import tokenizers

from headway.errors import ModelLoadError

SPACE_MARK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SENTENCEPIECE_STEPS = {"Replace", "ByteFallback", "Fuse", "Strip"}


def _byte_characters() -> dict[int, int]:
    """Return GPT-2's renaming, from character to byte: printable Latin-1 is itself, the rest moved.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", encoder.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in set(kept)]
    return {byte: byte for byte in kept} | {256 + n: byte for n, byte in enumerate(moved)}


_BYTE_OF_CHARACTER = _byte_characters()


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The bytes of every token id; ids that the tokenizer does not know stand for nothing."""

    token_bytes: tuple[bytes, ...]
    special: frozenset[int]
    """Control tokens, which `skip_special_tokens` leaves out of the text."""
    leading_spaces: int = 0
    """Spaces that the tokenizer puts before a text (SentencePiece: 1), taken off again here."""

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes of one token, empty for an unknown id."""
        return self.token_bytes[token_id] if 0 <= token_id < len(self.token_bytes) else b""

    def text(
        self, token_ids: Iterable[int], *, skip_special_tokens: bool, continuation: bool
    ) -> str:
        """Return the text of all tokens; each maximal invalid run of bytes is one U+FFFD.

        `continuation`: the tokens go on from others, so that a space before them is text.
        """
        skipped = self.special if skip_special_tokens else frozenset()
        joined = b"".join(self.bytes_of(i) for i in token_ids if i not in skipped)
        text = joined.decode("utf-8", "replace")
        pad = 0 if continuation else self.leading_spaces
        return text[min(pad, len(text) - len(text.lstrip(" "))) :]


def read_token_table(tokenizer: tokenizers.Tokenizer) -> TokenTable:
    """Return the table of a tokenizer. Raises ModelLoadError for a decoder of another kind."""
    steps = _decoder_steps(tokenizer)
    kinds = {step["type"] for step in steps}
    leading_spaces = 0
    if kinds == {"ByteLevel"}:
        to_bytes, added_to_bytes = _byte_level, _own_text
    elif kinds and kinds <= _SENTENCEPIECE_STEPS and all(map(_is_usual, steps)):
        to_bytes = added_to_bytes = _sentencepiece
        leading_spaces = sum(step["start"] for step in steps if step["type"] == "Strip")
    else:
        raise ModelLoadError(f"tokenizer: decoder {sorted(kinds)} is not supported")
    added = tokenizer.get_added_tokens_decoder()
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocab.values(), default=-1) + 1)
    for token, token_id in vocab.items():
        table[token_id] = (added_to_bytes if token_id in added else to_bytes)(token)
    special = frozenset(i for i, token in added.items() if token.special)
    return TokenTable(tuple(table), special, leading_spaces)


def _decoder_steps(tokenizer: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    if tokenizer.decoder is None:
        return []
    state: dict[str, Any] = json.loads(tokenizer.decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


def _is_usual(step: dict[str, Any]) -> bool:
    """Tell whether a step does what SentencePiece models need and nothing else."""
    if step["type"] == "Replace":
        return bool(step["pattern"] == {"String": SPACE_MARK} and step["content"] == " ")
    if step["type"] == "Strip":
        return bool(step["content"] == " " and step["stop"] == 0)
    return True


def _byte_level(token: str) -> bytes:
    """Return the bytes; a token with a character outside the renaming stands for its own text."""
    try:
        return bytes([_BYTE_OF_CHARACTER[ord(character)] for character in token])
    except KeyError:
        return token.encode()


def _own_text(token: str) -> bytes:
    return token.encode()


def _sentencepiece(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    if match is not None:
        return bytes([int(match[1], 16)])
    return token.replace(SPACE_MARK, " ").encode()
