"""Is each wrong field of a chat request refused by its name, and each right one taken?"""

import msgspec
import pytest

from headway.errors import InvalidRequestError
from headway.wire.chat import ChatCompletionRequest, decode_chat
from tests.wire.bad_fields import CHAT, SHARED
from tests.wire.bodies import Row, chat_body, name_of


def refused(body: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        decode_chat(body)
    return caught.value


@pytest.mark.parametrize("row", [*SHARED, *CHAT], ids=name_of)
def test_a_wrong_field_is_named(row: Row) -> None:
    field, value, param, code = row
    body = chat_body(**{field: value})
    if param is None:
        decode_chat(body)
        return
    error = refused(body)
    assert (error.status, error.param, error.code) == (400, param, code)
    assert len(error.message) < 1000


@pytest.mark.parametrize("field", ["model", "messages"])
def test_a_missing_field_is_named(field: str) -> None:
    body = msgspec.json.decode(chat_body())
    del body[field]
    error = refused(msgspec.json.encode(body))
    assert (error.param, error.code) == (field, "missing_required_parameter")


def test_the_table_covers_every_field() -> None:
    tried = {row[0] for row in (*SHARED, *CHAT)}
    harmless = {"prompt_cache_retention", "spaces_between_special_tokens"}
    assert set(ChatCompletionRequest.__struct_fields__) - tried == harmless


@pytest.mark.parametrize(
    ("first", "second", "param"),
    [
        ('"max_tokens": 5', '"max_completion_tokens": 6', "max_completion_tokens"),
        ('"max_tokens": 5', '"min_tokens": 6', "min_tokens"),
        ('"max_completion_tokens": 5', '"min_tokens": 6', "min_tokens"),
        ('"logprobs": false', '"top_logprobs": 0', "top_logprobs"),
        ('"stream": false', '"stream_options": {"include_usage": true}', "stream_options"),
        (
            '"add_generation_prompt": true',
            '"continue_final_message": true',
            "continue_final_message",
        ),
    ],
)
def test_fields_that_contradict_each_other(first: str, second: str, param: str) -> None:
    body = chat_body()[:-1] + f", {first}, {second}}}".encode()
    assert refused(body).param == param


HARMLESS = (
    '"tools": []',
    '"functions": []',
    '"tool_choice": "auto"',
    '"response_format": {"type": "text"}',
    '"modalities": ["text"]',
    '"store": true',
    '"metadata": {"a": "b"}',
    '"user": "u"',
    '"safety_identifier": "s"',
    '"prompt_cache_key": "k"',
    '"parallel_tool_calls": false',
    '"service_tier": "flex"',
    '"logprobs": true, "top_logprobs": 0',
    '"max_tokens": 5, "max_completion_tokens": 5',
    '"stream": true, "stream_options": {}',
    '"stream": true, "stream_options": null',
    '"temperature": null, "n": null, "stop": null, "logit_bias": null',
)


@pytest.mark.parametrize("fields", HARMLESS)
def test_harmless_fields_are_taken(fields: str) -> None:
    decode_chat(chat_body()[:-1] + f", {fields}}}".encode())


def test_a_message_echoed_by_the_openai_client_is_taken() -> None:
    echoed = (
        '{"content": "hi", "refusal": null, "role": "assistant", "annotations": [],'
        ' "audio": null, "function_call": null, "tool_calls": null}'
    )
    decode_chat(chat_body(messages=f"[{echoed}]"))


def test_text_parts_are_joined() -> None:
    parts = '[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]'
    request = decode_chat(chat_body(messages=f'[{{"role": "user", "content": {parts}}}]'))
    assert request.messages[0].text == "a\nb"


def test_log_probabilities_asked_for() -> None:
    assert decode_chat(chat_body()).num_logprobs is None
    assert decode_chat(chat_body(logprobs="true")).num_logprobs == 0
    assert decode_chat(chat_body(logprobs="true", top_logprobs="5")).num_logprobs == 5


@pytest.mark.parametrize("fields", ["", *(f", {fields}" for fields in HARMLESS)])
def test_encoding_again_gives_the_same_request(fields: str) -> None:
    request = decode_chat(chat_body()[:-1] + fields.encode() + b"}")
    assert decode_chat(msgspec.json.encode(request)) == request


def test_encoding_again_adds_nothing() -> None:
    body = chat_body(temperature="0.5", stop='["a"]')
    assert msgspec.json.decode(msgspec.json.encode(decode_chat(body))) == msgspec.json.decode(body)
