"""Do usage, choices and log-probabilities come as OpenAI's clients expect? (C6, C9)"""

from typing import Any

import pytest

from headway.engine.byte_tokenizer import EOS_TOKEN_ID
from tests.engine.server_stage import GatedRunner, stage


def usage_events(events: list[Any]) -> list[Any]:
    return [event for event in events if event != "[DONE]" and event.get("usage") is not None]


@pytest.mark.parametrize("path", ["chat", "complete"])
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {}}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"include_usage": True}}, True),
    ],
    ids=str,
)
def test_usage_comes_once_before_the_end_and_only_when_asked(
    path: str, options: dict[str, Any], asked: bool
) -> None:
    with stage() as one:
        ask = one.chat if path == "chat" else one.complete
        answer = ask(stream=True, n=2, max_tokens=5, ignore_eos=True, **options)
        events = answer.events
        assert events[-1] == "[DONE]"
        assert len(usage_events(events)) == asked
        if asked:
            assert events[-2]["choices"] == []
            usage = events[-2]["usage"]
            assert usage["completion_tokens"] == 10
            assert usage["total_tokens"] == usage["prompt_tokens"] + 10
        content = [event for event in events[:-1] if event["choices"]]
        assert all("usage" not in event for event in content)


def test_usage_options_without_a_stream_are_refused() -> None:
    with stage() as one:
        for stream in (False, None):
            answer = one.chat(stream=stream, stream_options={"include_usage": True})
            assert (answer.status, answer.error["param"]) == (400, "stream_options")


def test_usage_on_every_event_when_asked() -> None:
    with stage() as one:
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = one.chat(stream=True, max_tokens=5, stream_options=options).events
        counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
        assert counts == sorted(counts)
        assert counts[-1] <= 5


def test_a_stop_at_once_has_usage_too() -> None:
    runner = GatedRunner(num_blocks=64, scripts={tuple(b"hi"): (EOS_TOKEN_ID,)})
    with stage(runner=runner) as one:
        whole = one.complete().json()
        assert whole["choices"][0]["text"] == ""
        assert whole["choices"][0]["finish_reason"] == "stop"
        options = {"include_usage": True}
        events = one.complete(stream=True, stream_options=options).events
        assert events[0]["choices"][0]["finish_reason"] == "stop"
        assert events[-2]["usage"] == whole["usage"] | {
            "prompt_tokens_details": events[-2]["usage"]["prompt_tokens_details"]
        }


def test_each_of_n_choices_ends_once() -> None:
    with stage() as one:
        events = one.chat(stream=True, n=3, max_tokens=20, stop=["\x00", "a", "b"]).events[:-1]
        choices = [choice for event in events for choice in event["choices"]]
        assert {choice["index"] for choice in choices} == {0, 1, 2}
        for index in range(3):
            own = [choice for choice in choices if choice["index"] == index]
            assert [bool(choice["finish_reason"]) for choice in own].count(True) == 1
            assert own[-1]["finish_reason"] in {"stop", "length"}
            assert own[0]["delta"]["role"] == "assistant"
            assert all("role" not in choice["delta"] for choice in own[1:])


def test_prompt_tokens_are_counted_once_for_n() -> None:
    with stage() as one:
        whole = one.complete(n=3, max_tokens=4, ignore_eos=True).json()
        assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
        assert whole["usage"]["prompt_tokens"] == 2
        assert whole["usage"]["completion_tokens"] == 12


def test_logprobs_alone_give_the_drawn_token() -> None:
    with stage() as one:
        for fields in ({"logprobs": True}, {"logprobs": True, "top_logprobs": 0}):
            choice = one.chat(max_tokens=3, ignore_eos=True, **fields).json()["choices"][0]
            content = choice["logprobs"]["content"]
            assert len(content) == 3
            assert all(token["top_logprobs"] == [] for token in content)
            assert all(token["logprob"] == -0.5 for token in content)
        assert one.chat(max_tokens=3).json()["choices"][0]["logprobs"] is None


def test_top_logprobs_need_logprobs() -> None:
    with stage() as one:
        answer = one.chat(top_logprobs=5)
        assert (answer.status, answer.error["param"]) == (400, "top_logprobs")
        choice = one.chat(max_tokens=2, logprobs=True, top_logprobs=5).json()["choices"][0]
        assert all(len(token["top_logprobs"]) == 5 for token in choice["logprobs"]["content"])


@pytest.mark.parametrize("asked", [0, 3])
def test_logprobs_of_a_completion(asked: int) -> None:
    with stage() as one:
        fields: dict[str, Any] = {"logprobs": asked, "max_tokens": 6, "temperature": 0, "seed": 1}
        shape = one.complete(**fields).json()["choices"][0]["logprobs"]
        lengths = {len(values) for values in shape.values()}
        assert len(lengths) == 1
        assert all(len(top) <= max(asked, 1) for top in shape["top_logprobs"])
        events = one.complete(**fields, stream=True).events[:-1]
        streamed = [event["choices"][0]["logprobs"] for event in events]
        for name, values in shape.items():
            assert [one for part in streamed if part for one in part[name]] == values


def test_streams_are_not_buffered_on_the_way() -> None:
    with stage() as one:
        headers = one.chat(stream=True, max_tokens=2).headers
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"


def test_a_long_prefill_sends_heartbeats() -> None:
    with stage(server={"heartbeat_s": 0.05}) as one:
        one.runner.close_gate()
        connection = one.connect({"stream": True, "max_tokens": 2})
        with connection, connection.makefile("rb") as reader:
            beats = 0
            for line in reader:
                beats += line.startswith(b": keep-alive")
                if beats == 2:
                    one.runner.open_gate()
                if line.startswith(b"data: [DONE]"):
                    break
        assert beats >= 2
