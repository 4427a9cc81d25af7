"""Is every bad request a 4xx that names the field, while good ones go on? (issue: bad input, D1)"""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.server_stage import CHAT, COMPLETIONS, LONGEST_S, MODEL, Stage, stage
from tests.wire.bad_fields import CHAT as CHAT_ROWS
from tests.wire.bad_fields import COMPLETION as COMPLETION_ROWS
from tests.wire.bad_fields import SHARED
from tests.wire.bodies import CHAT_FIELDS, COMPLETION_FIELDS, body_with

GOOD = {"model": f'"{MODEL}"', "max_tokens": "2"}


@pytest.fixture(scope="module", name="one")
def served() -> Iterator[Stage]:
    with stage() as one:
        yield one


def test_each_wrong_field_is_refused_and_the_next_request_works(one: Stage) -> None:
    for path, fields, rows in (
        (CHAT, CHAT_FIELDS, (*SHARED, *CHAT_ROWS)),
        (COMPLETIONS, COMPLETION_FIELDS, (*SHARED, *COMPLETION_ROWS)),
    ):
        for field, value, param, code in rows:
            if param is None:
                continue
            answer = one.ask("POST", path, body_with({**fields, **GOOD}, **{field: value}))
            assert answer.status == 400, (path, field, value[:40])
            assert (answer.error["param"], answer.error["code"]) == (param, code)
            assert answer.error["type"] == "invalid_request_error"
    assert one.chat(max_tokens=2).status == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": [[999_999]]}, "prompt"),
        ({"prompt": [257]}, "prompt"),
        ({"logit_bias": {"999999": 5}}, "logit_bias"),
        ({"stop_token_ids": [257]}, "stop_token_ids"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": [1] * 5000}, "prompt"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"prompt": "x" * 4000, "max_tokens": 97}, "max_tokens"),
        ({"min_tokens": 5000, "max_tokens": 6000}, "max_tokens"),
        ({"prompt": ["a", "x" * 5000]}, "prompt"),
        ({"vllm_xargs": {"nonsense": 1}}, "vllm_xargs.nonsense"),
        ({"vllm_xargs": {"headway_weight": 0}}, "vllm_xargs.headway_weight"),
        ({"vllm_xargs": {"headway_weight": "1"}}, "vllm_xargs.headway_weight"),
        ({"vllm_xargs": {"headway_tenant": 1}}, "vllm_xargs.headway_tenant"),
        ({"vllm_xargs": {"headway_deadline_s": -1}}, "vllm_xargs.headway_deadline_s"),
        ({"vllm_xargs": {"headway_deadline_s": 10**400}}, "vllm_xargs.headway_deadline_s"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_only_the_model_can_refuse(one: Stage, fields: dict[str, object], param: str) -> None:
    answer = one.complete(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "messages"),
        ({"max_tokens": 5000}, "max_tokens"),
        ({"max_completion_tokens": 5000}, "max_completion_tokens"),
        (
            {"chat_template_kwargs": {"add_generation_prompt": True}},
            "chat_template_kwargs.add_generation_prompt",
        ),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_only_the_model_can_refuse_of_a_chat(
    one: Stage, fields: dict[str, object], param: str
) -> None:
    answer = one.chat(**fields)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_an_unknown_model_is_404(one: Stage) -> None:
    for path in (CHAT, COMPLETIONS):
        fields = CHAT_FIELDS if path == CHAT else COMPLETION_FIELDS
        answer = one.ask("POST", path, body_with(fields, model='"' + "x" * 400 + '"'))
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        assert answer.error["param"] == "model"


def test_an_unknown_path_is_404_and_a_wrong_method_405(one: Stage) -> None:
    assert one.get("/v1/nothing").error["code"] == "unknown_url"
    for method, path in (("GET", CHAT), ("DELETE", COMPLETIONS), ("POST", "/health")):
        answer = one.ask(method, path)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
        assert "allow" in answer.headers


@pytest.mark.parametrize("value", ["high", "", "1.5", "1e3", "99999999999999", "1,2"])
def test_a_priority_header_that_is_no_integer(one: Stage, value: str) -> None:
    answer = one.post(CHAT, {"messages": [{"role": "user", "content": "x"}]}, x_vllm_priority=value)
    assert (answer.status, answer.error["param"]) == (400, "x-vllm-priority")


def test_a_priority_header_that_comes_twice(one: Stage) -> None:
    body = body_with({**CHAT_FIELDS, **GOOD})
    twice = [("X-Vllm-Priority", "0"), ("x-vllm-priority", "-1")]
    answer = one.ask("POST", CHAT, body, twice)
    assert (answer.status, answer.error["param"]) == (400, "x-vllm-priority")


def test_a_body_over_the_limit_is_413_and_good_streams_go_on() -> None:
    with stage(server={"max_body_bytes": 100_000}) as one:
        good = [one.connect({"max_tokens": 500, "stream": True}) for _ in range(2)]
        answer = one.ask("POST", CHAT, b"x" * 5_000_000)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        for connection in good:
            with connection, connection.makefile("rb") as reader:
                assert any(line == b"data: [DONE]\n" for line in reader)


def test_a_chunked_body_over_the_limit_is_413() -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    chunks = (b"1000\r\n" + b"x" * 0x1000 + b"\r\n") * 10 + b"0\r\n\r\n"
    with stage(server={"max_body_bytes": 10_000}) as one:
        connection = socket.create_connection(("127.0.0.1", one.port), LONGEST_S)
        with connection:
            connection.sendall(head + chunks)
            assert connection.recv(12) == b"HTTP/1.1 413"


def test_hopeless_prompts_are_refused_by_their_size() -> None:
    body = json.dumps({"model": MODEL, "prompt": "x" * 5_000_000}).encode()
    with stage() as one, ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(one.ask, "POST", COMPLETIONS, body) for _ in range(6)]
        while not all(answer.done() for answer in asked):
            assert one.get("/health").status == 200
        for answer in asked:
            assert answer.result().status == 400
            assert answer.result().error["code"] == "context_length_exceeded"
