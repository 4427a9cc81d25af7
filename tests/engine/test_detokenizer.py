"""Text from tokens: fault C4 of the reference, for any split and any bytes."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.engine.byte_tokenizer import EOS_TOKEN_ID, ByteTokenizer
from headway.engine.model_source import resolve_model
from headway.engine.token_table import TokenTable
from headway.engine.tokenizer import Tokenizer, load_tokenizer

BYTES = ByteTokenizer()
SPACED = TokenTable(
    (b"<s>", b" Hello", b" ", b"world", "é".encode()[:1], "é".encode()[1:], b"  x"),
    frozenset([0]),
    leading_spaces=1,
)
CHARACTERS = ["👩‍👩‍👧", "🇩🇪", "ภาษาไทย", "ñ é̂", "中文", "\U0010ffff", "\u0800", "é", "a"]


@cache
def smollm() -> Tokenizer:
    return load_tokenizer(resolve_model("smollm2-135m"))


def stream(tokenizer: Tokenizer, ids: list[int], skip: bool = True) -> list[str]:
    state = tokenizer.detokenizer(skip_special_tokens=skip)
    return [*map(state.push, ids), state.finish()]


@settings(deadline=None)
@given(st.lists(st.integers(0, EOS_TOKEN_ID + 1), max_size=40), st.booleans())
@example([0xED, 0xA0, 0x80], True)
@example([0xF0, 0x9F, 0x98], True)
@example([0xE2, 0x82, EOS_TOKEN_ID, 0xAC], True)
@example([0xE2, 0x82, EOS_TOKEN_ID, 0xAC], False)
def test_joined_deltas_are_the_decoding_of_all_bytes(ids: list[int], skip: bool) -> None:
    eos = b"" if skip else b"<eos>"
    raw = b"".join(bytes([i]) if i < 256 else eos if i == 256 else b"" for i in ids)
    text = raw.decode("utf-8", "replace")
    assert "".join(stream(BYTES, ids, skip)) == text
    assert BYTES.decode(ids, skip_special_tokens=skip) == text


@settings(deadline=None)
@given(st.lists(st.integers(-1, 49200), max_size=30), st.booleans())
def test_joined_deltas_are_the_decoding_of_model_tokens(ids: list[int], skip: bool) -> None:
    assert "".join(stream(smollm(), ids, skip)) == smollm().decode(ids, skip_special_tokens=skip)


@settings(deadline=None)
@given(st.lists(st.integers(0, 7), max_size=20), st.booleans(), st.booleans())
def test_joined_deltas_with_a_leading_space(ids: list[int], skip: bool, continuation: bool) -> None:
    tokenizer = Spaced()
    state = tokenizer.detokenizer(skip_special_tokens=skip, continuation=continuation)
    deltas = [*map(state.push, ids), state.finish()]
    whole = tokenizer.decode(ids, skip_special_tokens=skip, continuation=continuation)
    assert "".join(deltas) == whole


class Spaced(ByteTokenizer):
    """A tokenizer that puts a space before each text, as SentencePiece does."""

    def __init__(self) -> None:
        super().__init__()
        self._table = SPACED


@pytest.mark.parametrize(
    ("ids", "continuation", "text"),
    [
        ([1, 2, 3], False, "Hello world"),
        ([1, 2, 3], True, " Hello world"),
        ([0, 1], False, "Hello"),
        ([2, 1], False, " Hello"),
        ([6], False, " x"),
        ([4, 5, 2], False, "é "),
        ([4, 1], False, "\ufffd Hello"),
        ([4], False, "\ufffd"),
    ],
)
def test_the_space_before_a_text_is_taken_off_once(
    ids: list[int], continuation: bool, text: str
) -> None:
    state = Spaced().detokenizer(skip_special_tokens=True, continuation=continuation)
    assert "".join(map(state.push, ids)) + state.finish() == text


@pytest.mark.parametrize("text", CHARACTERS)
def test_no_half_character_is_ever_shown(text: str) -> None:
    deltas = stream(BYTES, BYTES.encode(text))
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)
    assert all(len(delta) <= 1 for delta in deltas)


@pytest.mark.parametrize("text", CHARACTERS)
def test_every_cut_gives_at_most_one_replacement_and_only_at_the_end(text: str) -> None:
    ids = BYTES.encode(text)
    for end in range(len(ids)):
        *deltas, tail = stream(BYTES, ids[:end])
        assert text.startswith("".join(deltas))
        assert tail in ("", "\ufffd")
        assert (tail == "") == (
            bytes(ids[:end]).decode("utf-8", "ignore").encode() == bytes(ids[:end])
        )


def test_an_invalid_byte_in_the_middle_is_one_replacement_in_its_place() -> None:
    assert "".join(stream(BYTES, [*b"ab", 0xFF, *b"cd"])) == "ab\ufffdcd"
    assert stream(BYTES, [*b"a", 0xE2, 0x82, *b"b"]) == ["a", "", "", "\ufffdb", ""]


def test_a_prompt_that_ends_inside_a_character_shows_nothing_of_itself() -> None:
    """The state knows only the answer's tokens; a lone rest of a character is invalid."""
    prompt = BYTES.encode("secret 中")
    answer = [prompt.pop(), *BYTES.encode("ok")]
    assert "".join(stream(BYTES, answer)) == "\ufffdok" == BYTES.decode(answer)


def test_two_requests_interleaved_do_not_mix() -> None:
    one, two = (BYTES.detokenizer(skip_special_tokens=True) for _ in range(2))
    left, right = BYTES.encode("ééé中"), BYTES.encode("中é中é")
    texts = ["", ""]
    for a, b in zip(left, right, strict=False):
        texts[0] += one.push(a)
        texts[1] += two.push(b)
    texts[1] += "".join(map(two.push, right[len(left) :]))
    assert [texts[0] + one.finish(), texts[1] + two.finish()] == ["ééé中", "中é中é"]


def test_special_tokens_are_skipped_or_shown() -> None:
    tokenizer = smollm()
    [end] = tokenizer.eos_token_ids
    ids = [*tokenizer.encode("hi"), end]
    assert "".join(stream(tokenizer, ids)) == "hi"
    assert "".join(stream(tokenizer, ids, skip=False)) == "hi<|im_end|>"
