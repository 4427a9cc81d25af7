"""What does a GGUF file say about its text?

GGUF keeps the vocabulary, the merges or scores, and the *name* of the rule that splits text before
merging. The rule behind each name is that of the model's own `tokenizer.json`, which differs from
what `transformers` builds from a GGUF file: there `smollm` loses the splitting of digits, so that
spaces before a digit become other tokens than the model was trained on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from headway.engine.sentencepiece_merges import merges_by_score
from headway.engine.token_table import SPACE_MARK
from headway.engine.tokenizer_parts import TokenizerParts, chat_end_ids
from headway.errors import ModelLoadError

_PREFIX = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"
_TOKEN_ID_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


class TokenType(IntEnum):
    """Kinds of token, as numbered in GGUF files. Source: ggml, docs/gguf.md."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class _SplitRule:
    """How text is split before merging, and what else goes with the rule."""

    regex: str | None
    """None: the expression of GPT-2."""
    digits: bool = False
    """Each digit alone, before the expression is applied."""
    nfc: bool = False
    whole_words_first: bool = False
    """A piece that is in the vocabulary is taken whole, without merging."""
    add_bos: bool = False


_ENGLISH_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_OTHERS_AND_SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENGLISH_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_OTHERS_AND_SPACES}"
_QWEN2 = rf"{_ENGLISH_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_OTHERS_AND_SPACES}"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_RULES = {
    "gpt-2": _SplitRule(None),
    "smollm": _SplitRule(None, digits=True),
    "llama-bpe": _SplitRule(_LLAMA3, whole_words_first=True, add_bos=True),
    "qwen2": _SplitRule(_QWEN2, nfc=True),
    "tekken": _SplitRule(_TEKKEN, whole_words_first=True, add_bos=True),
}


def read_gguf_tokenizer(metadata: Mapping[str, Any]) -> TokenizerParts:
    """Build the tokenizer that a GGUF file's metadata describes.

    Raises ModelLoadError, naming the key, when something is missing, malformed or not supported.
    """
    vocabulary = _Vocabulary(metadata)
    kind = vocabulary.text("model")
    try:
        if kind == "gpt2":
            tokenizer, add_bos = _byte_level(vocabulary)
        elif kind == "llama":
            tokenizer, add_bos = _sentencepiece(vocabulary)
        else:
            raise ModelLoadError(f"{_PREFIX}model: {kind!r} is not supported, only gpt2 and llama")
        _add_tokens(tokenizer, vocabulary)
        special = {
            name: vocabulary.tokens[token_id]
            for name, key in _TOKEN_ID_KEYS.items()
            if (token_id := vocabulary.token_id(key)) is not None
        }
        add_bos = vocabulary.flag("add_bos_token", add_bos)
        add_eos = vocabulary.flag("add_eos_token", False)
        _surround(
            tokenizer,
            special.get("bos_token") if add_bos else None,
            special.get("eos_token") if add_eos else None,
        )
    except ModelLoadError:
        raise
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelLoadError(f"{_PREFIX}*: {error}") from error
    ends = {vocabulary.token_id(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")}
    ends.update(chat_end_ids(tokenizer))
    return TokenizerParts(
        tokenizer=tokenizer,
        bos_token_id=vocabulary.token_id("bos_token_id"),
        eos_token_ids=frozenset(token_id for token_id in ends if token_id is not None),
        special_tokens=special,
        chat_templates=_chat_templates(metadata),
    )


class _Vocabulary:
    """Checked access to the tokenizer's part of the metadata."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens: list[str] = self.array("tokens", str)
        if not self.tokens:
            raise ModelLoadError(f"{_PREFIX}tokens: empty")
        types = self.array("token_type", int) if self.has("token_type") else [1] * len(self.tokens)
        if len(types) != len(self.tokens):
            raise ModelLoadError(f"{_PREFIX}token_type: as many as tokens are needed")
        self.types: list[int] = types

    def has(self, key: str) -> bool:
        return _PREFIX + key in self._metadata

    def array(self, key: str, item_type: type) -> list[Any]:
        value = self._metadata.get(_PREFIX + key)
        if value is None:
            raise ModelLoadError(f"{_PREFIX}{key}: missing")
        if not isinstance(value, list) or not all(isinstance(i, item_type) for i in value):
            raise ModelLoadError(f"{_PREFIX}{key}: not a list of {item_type.__name__}")
        return value

    def text(self, key: str) -> str:
        value = self._metadata.get(_PREFIX + key)
        if not isinstance(value, str):
            raise ModelLoadError(f"{_PREFIX}{key}: missing or not a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._metadata.get(_PREFIX + key, default))

    def token_id(self, key: str) -> int | None:
        value = self._metadata.get(_PREFIX + key)
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(self.tokens):
            raise ModelLoadError(f"{_PREFIX}{key}: {value!r} is not a token id")
        return value

    def used(self) -> dict[str, int]:
        """Return the ids of the tokens; those of type UNUSED only fill the table."""
        typed = enumerate(zip(self.tokens, self.types, strict=True))
        return {token: i for i, (token, kind) in typed if kind != TokenType.UNUSED}


def _byte_level(vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """Build a byte-level BPE; also return whether such models begin a text with BOS."""
    name = vocabulary.text("pre")
    rule = _RULES.get(name)
    if rule is None:
        known = ", ".join(sorted(_RULES))
        raise ModelLoadError(f"{_PREFIX}pre: {name!r} is not supported, only {known}")
    merges = []
    for merge in vocabulary.array("merges", str):
        # The first part is never empty, so a space in front belongs to it.
        cut = merge.find(" ", 1)
        if cut < 0:
            raise ModelLoadError(f"{_PREFIX}merges: {merge!r} is not two parts")
        merges.append((merge[:cut], merge[cut + 1 :]))
    model = models.BPE(vocab=vocabulary.used(), merges=merges, ignore_merges=rule.whole_words_first)
    tokenizer = tokenizers.Tokenizer(model)
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    prefix = vocabulary.flag("add_space_prefix", False)
    steps: list[pre_tokenizers.PreTokenizer] = []
    if rule.digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.regex is not None:
        steps.append(pre_tokenizers.Split(Regex(rule.regex), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=rule.regex is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, rule.add_bos


def _sentencepiece(vocabulary: _Vocabulary) -> tuple[tokenizers.Tokenizer, bool]:
    """Build a SentencePiece BPE with byte fallback; also return that such models begin with BOS."""
    scores = vocabulary.array("scores", float)
    if len(scores) != len(vocabulary.tokens):
        raise ModelLoadError(f"{_PREFIX}scores: as many as tokens are needed")
    mergeable = (TokenType.NORMAL, TokenType.USER_DEFINED)
    pieces = {
        token: score
        for token, kind, score in zip(vocabulary.tokens, vocabulary.types, scores, strict=True)
        if kind in mergeable
    }
    unknown = vocabulary.token_id("unknown_token_id")
    model = models.BPE(
        vocab=vocabulary.used(),
        merges=merges_by_score(pieces),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = tokenizers.Tokenizer(model)
    spaces = normalizers.Replace(" ", SPACE_MARK)
    steps = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.flag("add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = normalizers.Sequence([spaces])
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer, True


def _add_tokens(tokenizer: tokenizers.Tokenizer, vocabulary: _Vocabulary) -> None:
    """Let control and user-defined tokens be found in a text before anything else."""
    special, plain = [], []
    for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            special.append(AddedToken(token, special=True, normalized=False))
        elif kind == TokenType.USER_DEFINED:
            plain.append(AddedToken(token, special=False, normalized=False))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)


def _surround(tokenizer: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """Make `tokenizer` put these tokens around a text; those that it does not know it omits."""
    # In a template the tokens go by names of ours, for "$" and ":" mean something there.
    known = [
        {"id": name, "ids": [token_id], "tokens": [token]}
        for name, token in (("BOS", bos), ("EOS", eos))
        if token is not None and (token_id := tokenizer.token_to_id(token)) is not None
    ]
    names = {item["id"] for item in known}
    single = [name for name in ("BOS", "$A", "EOS") if name == "$A" or name in names]
    tokenizer.post_processor = TemplateProcessing(single=single, pair=None, special_tokens=known)


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the templates by name: `tokenizer.chat_template` and `tokenizer.chat_template.NAME`"""
    found = {}
    for key, value in metadata.items():
        name = "default" if key == _TEMPLATE else key.removeprefix(_TEMPLATE + ".")
        if key == _TEMPLATE or name != key:
            if not isinstance(value, str):
                raise ModelLoadError(f"{key}: not a string")
            found[name] = value
    return found
