"""Is each wrong field of a completion request refused by its name, and each right one taken?"""

import msgspec
import pytest

from headway.errors import InvalidRequestError
from headway.wire.completions import CompletionRequest, decode_completion
from tests.wire.bad_fields import COMPLETION, SHARED
from tests.wire.bodies import Row, completion_body, name_of


def refused(body: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        decode_completion(body)
    return caught.value


@pytest.mark.parametrize("row", [*SHARED, *COMPLETION], ids=name_of)
def test_a_wrong_field_is_named(row: Row) -> None:
    field, value, param, code = row
    body = completion_body(**{field: value})
    if param is None:
        decode_completion(body)
        return
    error = refused(body)
    assert (error.status, error.param, error.code) == (400, param, code)


@pytest.mark.parametrize("field", ["model", "prompt"])
def test_a_missing_field_is_named(field: str) -> None:
    body = msgspec.json.decode(completion_body())
    del body[field]
    error = refused(msgspec.json.encode(body))
    assert (error.param, error.code) == (field, "missing_required_parameter")


def test_the_table_covers_every_field() -> None:
    tried = {row[0] for row in (*SHARED, *COMPLETION)}
    harmless = {"spaces_between_special_tokens"}
    assert set(CompletionRequest.__struct_fields__) - tried == harmless


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ('"a"', ["a"]),
        ('["a", "b"]', ["a", "b"]),
        ("[1, 2]", [[1, 2]]),
        ("[[1], [2, 3]]", [[1], [2, 3]]),
    ],
)
def test_each_shape_of_prompt(prompt: str, prompts: list[str | list[int]]) -> None:
    request = decode_completion(completion_body(prompt=prompt, n="2", best_of="2"))
    assert request.prompts == prompts
    assert request.num_choices == 2 * len(prompts)
    assert decode_completion(msgspec.json.encode(request)) == request


def test_prompts_times_n_is_bounded() -> None:
    prompt = "[" + ",".join(['"a"'] * 64) + "]"
    decode_completion(completion_body(prompt=prompt, n="2"))
    assert refused(completion_body(prompt=prompt, n="3")).param == "n"


def test_the_default_limit_is_openais() -> None:
    assert decode_completion(completion_body()).max_output_tokens == 16
    assert refused(completion_body(min_tokens="17")).param == "min_tokens"
