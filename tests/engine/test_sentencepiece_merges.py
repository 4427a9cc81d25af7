"""SentencePiece models in GGUF files, against the definition of their merging."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.gguf_tokenizer import TokenType, read_gguf_tokenizer
from headway.engine.sentencepiece_merges import merges_by_score
from headway.engine.tokenizer import ModelTokenizer
from headway.errors import ModelLoadError

PIECES = [
    "a",
    "b",
    "c",
    "▁",
    "é",
    "ab",
    "▁a",
    "bc",
    "▁ab",
    "aa",
    "▁▁",
    "abc",
    "ca",
    "▁abc",
    "éa",
    "cab",
]


def sentencepiece(**more: Any) -> dict[str, Any]:
    """Metadata of a small SentencePiece model; scores fall in the order of PIECES."""
    each_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    first = ["<unk>", "<s>", "</s>"]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*first, *each_byte, *PIECES],
        "tokenizer.ggml.token_type": [*map(int, kinds), *[1] * len(PIECES)],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(PIECES))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def merged_by_definition(text: str) -> list[int]:
    """SentencePiece: merge the neighbours whose union scores best, leftmost first; then bytes."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [
            (PIECES.index(both), at)
            for at in range(len(parts) - 1)
            if (both := parts[at] + parts[at + 1]) in PIECES
        ]
        if not pairs:
            break
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    ids: list[int] = []
    for part in parts:
        known = part in PIECES
        ids += [259 + PIECES.index(part)] if known else [3 + byte for byte in part.encode()]
    return ids


@settings(deadline=None)
@given(st.text(alphabet="aabbcc  éx😀", max_size=24))
def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(text: str) -> None:
    ours = ModelTokenizer(read_gguf_tokenizer(sentencepiece()))
    expected = merged_by_definition(" " + text) if text else []
    assert ours.encode(text) == [1, *expected]
    assert ours.decode(ours.encode(text)) == text
    plain = ModelTokenizer(read_gguf_tokenizer(sentencepiece(add_space_prefix=False)))
    assert plain.encode(text, add_special_tokens=False) == merged_by_definition(text)
    assert plain.decode(plain.encode(text)) == text


def test_sentencepiece_streams_as_it_decodes() -> None:
    ours = ModelTokenizer(read_gguf_tokenizer(sentencepiece()))
    ids = ours.encode("ab é😀 x")
    state = ours.detokenizer(skip_special_tokens=True)
    assert "".join(map(state.push, ids)) + state.finish() == "ab é😀 x"
    after = ours.detokenizer(skip_special_tokens=True, continuation=True)
    assert "".join(map(after.push, ids)) + after.finish() == " ab é😀 x"
    assert ours.decode(ids, continuation=True) == " ab é😀 x"


def test_merges_do_not_depend_on_the_order_of_pieces() -> None:
    scores = {piece: -float(i) for i, piece in enumerate(PIECES)}
    backwards = dict(reversed(scores.items()))
    assert merges_by_score(scores) == merges_by_score(backwards)
    assert merges_by_score(scores)[0] == ("a", "b")


@pytest.mark.parametrize("scores", [None, [1.0], ["x"]])
def test_sentencepiece_without_scores_is_refused(scores: Any) -> None:
    metadata = sentencepiece(scores=scores)
    with pytest.raises(ModelLoadError, match=r"tokenizer\.ggml\.scores"):
        read_gguf_tokenizer({k: v for k, v in metadata.items() if v is not None})
