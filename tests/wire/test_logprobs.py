"""Are log-probabilities shaped as in OpenAI's two APIs, and never NaN or infinite?"""

import json
from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire.logprobs import (
    LOWEST_LOGPROB,
    DrawnToken,
    TokenText,
    chat_logprobs,
    clamp_logprob,
    completion_logprobs,
)

A, B = TokenText("a", b"a", -0.5), TokenText("\ufffd", b"\xe4", -1.5)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-0.5, -0.5), (nan, LOWEST_LOGPROB), (-inf, LOWEST_LOGPROB), (inf, 0.0), (-1e9, -9999.0)],
)
def test_clamping(value: float, shown: float) -> None:
    assert clamp_logprob(value) == shown


@given(value=st.floats())
def test_json_never_holds_what_is_no_number(value: float) -> None:
    token = TokenText("a", b"a", value)
    drawn = [DrawnToken(token, (token,))]
    for shape in (chat_logprobs(drawn), completion_logprobs(drawn, 0)):
        text = msgspec.json.encode(shape)
        assert b"null" not in text.replace(b'"refusal":null', b"")
        json.loads(text, parse_constant=lambda name: pytest.fail(name))


def test_the_chat_shape() -> None:
    shape = msgspec.to_builtins(chat_logprobs([DrawnToken(A, (A, B)), DrawnToken(B)]))
    assert [one["token"] for one in shape["content"]] == ["a", "\ufffd"]
    assert shape["content"][0]["top_logprobs"][1]["bytes"] == [0xE4]
    assert shape["content"][1]["top_logprobs"] == []


def test_the_completion_shape() -> None:
    shape = completion_logprobs([DrawnToken(A, (B,)), DrawnToken(B)], offset=3)
    assert shape.text_offset == [3, 4]
    assert shape.tokens == ["a", "\ufffd"]
    assert shape.token_logprobs == [-0.5, -1.5]
    assert shape.top_logprobs == [{"\ufffd": -1.5, "a": -0.5}, {"\ufffd": -1.5}]
