"""Is every body that is not a request refused as the caller's error, and never as another?"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ClientError, InvalidRequestError
from headway.wire.chat import ChatCompletionRequest, decode_chat
from headway.wire.completions import CompletionRequest, decode_completion
from headway.wire.errors import client_error_body
from headway.wire.tokenize import decode_detokenize, decode_tokenize
from tests.wire.bodies import chat_body

DECODERS: list[Callable[[bytes], Any]] = [
    decode_chat,
    decode_completion,
    decode_tokenize,
    decode_detokenize,
]

NOT_JSON = (
    b"",
    b" ",
    b"{",
    b'{"model": "m"',
    b"nonsense",
    b"{} {}",
    b"\xff\xfe{\x00}\x00",
    chat_body(temperature="NaN"),
    chat_body(temperature="Infinity"),
    chat_body(temperature="-Infinity"),
    chat_body(temperature=".5"),
    chat_body(user='"\\ud800"'),
    chat_body(user='"\\udc00\\ud800"'),
    chat_body(user='"a\\ud83dz"'),
    chat_body().replace(b"hi", b"\xff"),
    chat_body().replace(b"hi", b"\xed\xa0\x80"),
    chat_body().replace(b"hi", b"\xc0\xaf"),
    chat_body(chat_template_kwargs='{"a":' * 1000 + "1" + "}" * 1000),
    chat_body(chat_template_kwargs='{"a":' * 100_000),
    chat_body(messages="[" * 100_000),
    b"[" * 100_000,
)


@pytest.mark.parametrize("body", NOT_JSON, ids=lambda body: repr(body[:24]))
def test_what_is_not_json_is_the_callers_error(body: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(body)
    assert caught.value.status == 400
    json.loads(client_error_body(caught.value))


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"null", b"true"])
def test_what_is_not_an_object_is_the_callers_error(body: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(body)
    assert caught.value.code == "invalid_type"


def test_a_byte_order_mark_is_skipped() -> None:
    assert decode_chat(b"\xef\xbb\xbf" + chat_body()) == decode_chat(chat_body())


def test_of_duplicate_keys_the_last_wins() -> None:
    assert decode_chat(chat_body()[:-1] + b', "n": 2, "n": 3}').n == 3


def test_a_huge_unknown_name_is_cut() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(chat_body(**{"x" * 1_000_000: "1"}))
    assert caught.value.code == "unknown_parameter"
    assert len(client_error_body(caught.value)) < 1000


@pytest.mark.parametrize("name", ["a` - at `$.n", "` - at `key` in `$.n", "\\u0000", "\\n`"])
def test_a_name_made_to_mislead_is_still_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_chat(chat_body(**{name: "1"}))


FIELDS = sorted(
    {*ChatCompletionRequest.__struct_fields__, *CompletionRequest.__struct_fields__, "tokens"}
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.sampled_from(["user", "text", "auto", "m"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "include_usage", "1"])
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def only_client_errors(decode: Callable[[bytes], Any], body: bytes) -> None:
    """Decode; what is taken must survive another round, what is refused must be sayable."""
    try:
        request = decode(body)
    except ClientError as error:
        json.loads(client_error_body(error))
    else:
        assert decode(msgspec.json.encode(request)) == request


@given(body=st.binary(max_size=64))
@settings(max_examples=150, deadline=None)
def test_any_bytes_raise_nothing_but_client_errors(body: bytes) -> None:
    for decode in DECODERS:
        only_client_errors(decode, body)


@given(body=st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), VALUES, max_size=6))
@settings(max_examples=300, deadline=None)
def test_any_object_raises_nothing_but_client_errors(body: dict[str, Any]) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    completion = {"model": "m", "prompt": "hi", **body}
    for decode, one in zip(DECODERS, (chat, completion, body, body), strict=True):
        # json writes NaN and lone surrogates, which are no JSON: all the better.
        only_client_errors(decode, json.dumps(one).encode())


@given(body=st.binary(max_size=4), at=st.integers(0, 60))
@settings(max_examples=150, deadline=None)
def test_a_damaged_request_raises_nothing_but_client_errors(body: bytes, at: int) -> None:
    whole = chat_body(temperature="0.5")
    only_client_errors(decode_chat, whole[:at] + body + whole[at + len(body) :])
