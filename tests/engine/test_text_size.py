"""The size bound of prompts (fault D4 of the reference): never too low, absent where it must be."""

import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers

from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.model_source import resolve_model
from headway.engine.text_size import UNBOUNDED, max_bytes_per_token
from headway.engine.tokenizer import load_tokenizer
from tests.engine.small_tokenizers import made, with_parts, with_token


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_byte_level_round_trip_within_the_size_bound(text: str) -> None:
    ids = made("byte-level").encode(text)
    assert made("byte-level").decode(ids, skip_special_tokens=False) == "<s>" + text
    assert len(text.encode()) <= (len(ids) - 1) * made("byte-level").max_token_bytes


@settings(deadline=None)
@given(st.text(alphabet="\u03b9\u1fbe\u0308\u0301\u0344\u212aKÅ\u1100\u1161\u11a8각é", max_size=30))
def test_the_size_bound_holds_where_text_is_composed(text: str) -> None:
    ids = made("with NFC").encode(text, add_special_tokens=False)
    assert made("with NFC").decode(ids) == unicodedata.normalize("NFC", text)
    assert len(text.encode()) <= len(ids) * made("with NFC").max_token_bytes


def test_no_composition_shrinks_text_more_than_the_bound_assumes() -> None:
    """The longest spelling of each composed character, in bytes, against the character's own.

    Planes 0 to 2 hold all characters that compose or decompose.
    """
    points = [chr(p) for p in range(0x30000) if not 0xD800 <= p < 0xE000]
    apart = {c: unicodedata.normalize("NFD", c) for c in points}
    longest: dict[str, int] = {}
    for c, parts in apart.items():
        if len(parts) == 1:
            longest[parts] = max(longest.get(parts, 0), len(c.encode()))
    worst = max(
        sum(longest[part] for part in parts) / len(c.encode())
        for c, parts in apart.items()
        if unicodedata.normalize("NFC", c) == c
    )
    ratio = made("with NFC").max_token_bytes / made("without BOS").max_token_bytes
    assert 3 < worst <= ratio == 4


@settings(deadline=None)
@given(st.text(alphabet="abé ▁😀\n<s>", max_size=30))
def test_sentencepiece_round_trip_within_the_size_bound(text: str) -> None:
    tokenizer = made("SentencePiece")
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(text.encode()) <= len(ids) * tokenizer.max_token_bytes
    if "<s>" not in text:
        assert tokenizer.decode(ids) == text.replace("▁", " ")


def test_a_hopeless_prompt_is_known_by_its_size() -> None:
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    longest = max(range(tokenizer.vocab_size), key=lambda i: len(tokenizer.token_bytes(i)))
    text = tokenizer.token_text(longest) * 50
    assert len(tokenizer.encode(text)) == 50
    assert not tokenizer.hopeless(len(text.encode()), 50)
    assert tokenizer.hopeless(len(text.encode()) + 1, 50)
    assert tokenizer.hopeless(5_000_000, 8192)
    assert ByteTokenizer().hopeless(9, 8)
    assert not ByteTokenizer().hopeless(8, 8)


@pytest.mark.parametrize(
    "tokenizer",
    [
        with_parts(normalizer=normalizers.Lowercase()),
        with_parts(normalizer=normalizers.Replace("abc", "a")),
        with_parts(normalizer=normalizers.Replace(Regex("x+"), "x")),
        with_parts(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])),
        with_parts(pre_tokenizer=pre_tokenizers.Split(" ", "removed")),
        with_parts(pre_tokenizer=pre_tokenizers.Whitespace()),
        with_token(AddedToken("<swallows>", rstrip=True)),
        with_token(AddedToken("<swallows>", lstrip=True)),
        tokenizers.Tokenizer(models.BPE({"<unk>": 0}, [], unk_token="<unk>", fuse_unk=True)),
        tokenizers.Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>")),
    ],
)
def test_there_is_no_size_bound_where_one_token_may_take_any_text(
    tokenizer: tokenizers.Tokenizer,
) -> None:
    assert max_bytes_per_token(tokenizer) == UNBOUNDED


def test_unknown_characters_that_stay_apart_are_bounded() -> None:
    apart = tokenizers.Tokenizer(models.BPE({"<unk>": 0}, [], unk_token="<unk>", fuse_unk=False))
    assert max_bytes_per_token(apart) == len("<unk>")
