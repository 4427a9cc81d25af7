"""Is a body of too many values refused before it is decoded? (D4, K10, K15)"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidRequestError
from headway.wire.chat import decode_chat
from headway.wire.completions import decode_completion
from headway.wire.json_size import BRACKET_WEIGHT, MAX_WEIGHT, check_weight, weight_of
from headway.wire.tokenize import decode_detokenize, decode_tokenize

CHUNK = 64 * 1024
HI = '"messages":[{"role":"user","content":"hi"}]'
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.sampled_from('a",:[]{}\\\n中'), max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
)


def counted(text: str) -> int:
    """Count character by character."""
    weight, in_string, escaped = 0, False, False
    for char in text:
        if escaped:
            escaped = False
        elif in_string and char == "\\":
            escaped = True
        elif char == '"':
            in_string = not in_string
        elif not in_string:
            weight += 1 if char == "," else BRACKET_WEIGHT * (char in ":[]{}")
    return weight


@given(JSON, st.booleans())
def test_what_stands_outside_of_strings_is_counted(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert weight_of(text.encode()) == counted(text)


@pytest.mark.parametrize("inside", ['\\"', "\\\\", '\\\\\\"', "\\u005c", ",", '","', '":["'])
@pytest.mark.parametrize("before", range(8))
def test_nothing_is_lost_where_two_chunks_meet(inside: str, before: int) -> None:
    text = '["' + "x" * (CHUNK - before - 2) + inside + '", 1, {"a": 2}]'
    assert weight_of(text.encode()) == counted(text)


HEAVY: list[tuple[Callable[[bytes], Any], str]] = [
    (decode_completion, '{"model":"m","prompt":[' + "1," * MAX_WEIGHT + "1]}"),
    (decode_completion, '{"model":"m","prompt":[' + "[1]," * 50_000 + "[1]]}"),
    (decode_completion, '{"model":"m","prompt":[' + '"a",' * MAX_WEIGHT + '"a"]}'),
    (decode_chat, '{"model":"m","messages":' + "[" * 100_000),
    (decode_chat, '{"model":"m",' + HI + ',"tools":[' + '{"a":1},' * 50_000 + "1]}"),
    (
        decode_chat,
        '{"model":"m",'
        + HI
        + ',"logit_bias":{'
        + ",".join(f'"{i}":1' for i in range(70_000))
        + "}}",
    ),
    (decode_tokenize, '{"messages":[' + '{"role":"user","content":"a"},' * 20_000 + "1]}"),
    (decode_detokenize, '{"tokens":[' + "1," * MAX_WEIGHT + "1]}"),
    (decode_chat, '"' * (3 * MAX_WEIGHT)),
]


@pytest.mark.parametrize(("decode", "body"), HEAVY, ids=lambda item: str(item)[:40])
def test_too_many_values_are_refused_undecoded(decode: Callable[[bytes], Any], body: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(body.encode())
    assert caught.value.code == "too_many_values"


def test_a_long_prompt_is_not_heavy() -> None:
    text = 'He said: "a, b, [c]: {d}" \\ ' * 100_000
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    assert decode_chat(body).messages[0].content == text
    ids = list(range(1000, 1000 + 200_000))
    assert decode_completion(json.dumps({"model": "m", "prompt": ids}).encode()).prompts == [ids]


def test_a_small_body_is_never_too_heavy() -> None:
    check_weight(b"[" * (MAX_WEIGHT // BRACKET_WEIGHT))
    with pytest.raises(InvalidRequestError):
        check_weight(b"[" * (MAX_WEIGHT // BRACKET_WEIGHT + 1))
