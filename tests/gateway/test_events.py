"""What the client gets of a node's events."""

import json
from typing import Any

import pytest

from headway.gateway.events import TokenCounts, Translator
from headway.gateway.node_client import NodeFailedError

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def chunk(content: str = "a", finish: str | None = None, **fields: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [choice], **fields}).encode()


def translator(*, include_usage: bool = False, continuous_usage: bool = False) -> Translator:
    return Translator(
        "priority",
        num_prompt_tokens=5,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
    )


def said(data: bytes | None) -> Any:
    assert data is not None
    pairs: list[tuple[str, Any]] = json.loads(data, object_pairs_hook=list)
    assert len({name for name, _ in pairs}) == len(pairs), "a key comes twice"
    return json.loads(data)


def test_each_event_names_the_tier_used_and_changes_nothing_else() -> None:
    got = said(translator().event(chunk("é漢")))
    assert got.pop("service_tier") == "priority"
    assert got == json.loads(chunk("é漢"))


@pytest.mark.parametrize("claimed", [None, "default"])
def test_what_the_node_claims_as_tier_is_replaced(claimed: str | None) -> None:
    assert said(translator().event(chunk(service_tier=claimed)))["service_tier"] == "priority"


def test_usage_is_kept_back_and_given_only_if_asked() -> None:
    for asked in (False, True):
        one = translator(include_usage=asked)
        one.event(chunk())
        assert one.event(chunk(choices=[], usage=USAGE)) is None
        last = one.last_event()
        assert (last is not None) == asked
        if asked:
            got = said(last)
            assert (got["choices"], got["usage"]) == ([], USAGE)
            assert got["service_tier"] == "priority"
        assert one.counts == TokenCounts(7, 2, 0, estimated=False)


def test_usage_on_every_chunk_becomes_one_chunk() -> None:
    one = translator(include_usage=True)
    for count in (1, 2):
        assert "usage" not in said(one.event(chunk(usage={**USAGE, "completion_tokens": count})))
    assert said(one.last_event())["usage"]["completion_tokens"] == 2


def test_continuous_usage_is_passed_on_when_asked() -> None:
    one = translator(include_usage=True, continuous_usage=True)
    assert said(one.event(chunk(usage=USAGE)))["usage"] == USAGE
    assert "usage" not in said(one.event(chunk(usage=None)))


def test_a_node_that_tells_nothing_is_counted() -> None:
    one = translator(include_usage=True)
    one.event(chunk(""))
    one.event(chunk("a"))
    one.event(chunk("b"))
    one.event(chunk("", finish="stop"))
    assert one.counts == TokenCounts(5, 2, 0, estimated=True)
    got = said(one.last_event())
    assert got["id"] == "chatcmpl-1"
    assert got["usage"]["total_tokens"] == 7
    assert one.answered


def test_cached_tokens_may_be_absent() -> None:
    for details, cached in ((None, 0), ({"cached_tokens": None}, 0), ({"cached_tokens": 4}, 4)):
        one = translator()
        one.event(chunk(choices=[], usage={**USAGE, "prompt_tokens_details": details}))
        assert one.counts.cached_tokens == cached


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b"null", b'{"choices": 3}', b'{"choices": [{"delta": "\xff"}]}'],
)
def test_nonsense_is_a_failure_of_the_node(data: bytes) -> None:
    with pytest.raises(NodeFailedError):
        translator().event(data)
    with pytest.raises(NodeFailedError):
        translator().whole(data)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ('{"message": "out of blocks", "code": 500}', "out of blocks"),
        ('"dead"', "the node reported an error"),
    ],
)
def test_an_error_event_is_a_failure_with_its_message(error: str, text: str) -> None:
    with pytest.raises(NodeFailedError, match=text):
        translator().event(f'{{"error": {error}}}'.encode())


def test_a_whole_answer_names_the_tier_and_has_usage() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hello there"}}
    body = {"id": "1", "choices": [choice], "service_tier": "auto"}
    told = translator()
    got = said(told.whole(json.dumps({**body, "usage": USAGE}).encode()))
    assert (got["service_tier"], got["usage"]) == ("priority", USAGE)
    assert told.counts == TokenCounts(7, 2, 0, estimated=False)
    untold = translator()
    got = said(untold.whole(json.dumps(body).encode()))
    assert untold.counts.estimated
    assert got["usage"]["completion_tokens"] == untold.counts.completion_tokens > 0
