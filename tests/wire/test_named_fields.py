"""Is the field named even where the body is no JSON, or only too much of it?"""

import json
from typing import Any

import pytest

from headway.errors import InvalidRequestError
from headway.wire.chat import MAX_MESSAGES, decode_chat

MESSAGE = {"role": "user", "content": "hi"}


def refused(body: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(body)
    return caught.value


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [MESSAGE]} | fields).encode()


@pytest.mark.parametrize(
    ("text", "param"),
    [
        (b'"temperature": NaN', "temperature"),
        (b'"top_p": 1e999', "top_p"),
        (b'"min_p": -Infinity', "min_p"),
        (b'"stop": ["a", "\\ud800"]', "stop"),
        (b'"logit_bias": {"1": NaN}', "logit_bias"),
    ],
)
def test_a_value_that_is_no_json_names_its_field(text: bytes, param: str) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], %b}' % text
    error = refused(body)
    assert error.param == param
    json.dumps(error.message, allow_nan=False).encode()


def test_too_many_or_empty_parts_are_refused_by_field() -> None:
    assert refused(chat(messages=[MESSAGE] * (MAX_MESSAGES + 1))).param == "messages"
    assert refused(chat(messages=[{"role": "user", "content": []}])).param == "messages[0].content"
    many = {f"k{index}": 1 for index in range(33)}
    assert refused(chat(chat_template_kwargs=many)).param == "chat_template_kwargs"
    assert refused(chat(repetition_penalty=1e-30)).param == "repetition_penalty"
    decode_chat(chat(messages=[MESSAGE] * MAX_MESSAGES))
