"""Are `/tokenize` and `/detokenize` bodies checked as strictly as the others?"""

import pytest

from headway.errors import InvalidRequestError
from headway.wire.tokenize import decode_detokenize, decode_tokenize


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "prompt"),
        (b'{"prompt": null}', "prompt"),
        (b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}', "prompt"),
        (b'{"prompt": 1}', "prompt"),
        (b'{"messages": []}', "messages"),
        (b'{"prompt": "a", "nonsense": 1}', "nonsense"),
        (b'{"prompt": "a", "add_special_tokens": 1}', "add_special_tokens"),
    ],
)
def test_a_wrong_tokenize_field_is_named(body: bytes, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_tokenize(body)
    assert caught.value.param == param


def test_either_a_text_or_a_conversation() -> None:
    assert decode_tokenize(b'{"prompt": ""}').prompt == ""
    chat = decode_tokenize(b'{"messages": [{"role": "user", "content": "a"}]}')
    assert chat.messages is not None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{}", "tokens"),
        (b'{"tokens": [-1]}', "tokens[0]"),
        (b'{"tokens": ["a"]}', "tokens[0]"),
        (b'{"tokens": 1}', "tokens"),
    ],
)
def test_a_wrong_detokenize_field_is_named(body: bytes, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_detokenize(body)
    assert caught.value.param == param
