"""However the network cuts a stream, and whatever the node tells of usage (trials C5 and C6)."""

from typing import Any, Literal

import pytest

from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import gateway_before, run

WORDS = ("北京", "😀 ", "naïve ", "\u2028", "emoji👩‍👩‍👧", "plain ", '"quoted"\n', "\\ ")
TOKENS = (*(WORDS[index % len(WORDS)] for index in range(47)), "长" * 100_000, "z", "终")


def stream_of(behaviour: Behaviour, **fields: Any) -> tuple[list[str], str, int]:
    """Return the events that a client gets (without the id), the text, and the tokens recorded."""

    async def scenario() -> tuple[list[str], str, int]:
        async with gateway_before(FakeNode(behaviour=behaviour)) as running:
            answer = await running.chat(("x-request-id", "one"), stream=True, **fields)
            assert answer.status == 200
            record = running.record("one")
            events = [event.replace(record.id, "ID") for event in answer.events]
            return events, answer.text, record.completion_tokens

    return run(scenario())


def test_every_cut_gives_the_same_bytes() -> None:
    whole, text, count = stream_of(Behaviour(tokens=TOKENS))
    assert text == "".join(TOKENS)
    assert count == len(TOKENS)
    for newline in ("\n", "\r\n", "\r"):
        for split in (4096, None):
            behaviour = Behaviour(
                tokens=TOKENS, split=split, newline=newline, comments=True, last_blank_line=False
            )
            assert stream_of(behaviour) == (whole, text, count)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("split", [1, 2, 7])
def test_every_cut_inside_a_character_gives_the_same_bytes(split: int, newline: str) -> None:
    tokens = TOKENS[:12]
    whole = stream_of(Behaviour(tokens=tokens))
    cut = Behaviour(tokens=tokens, split=split, newline=newline, comments=True)
    assert stream_of(cut) == whole


@pytest.mark.parametrize("usage", ["final", "never", "every"])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("absent", False),
        (None, False),
        ({}, False),
        ({"include_usage": False}, False),
        ({"include_usage": True}, True),
    ],
)
def test_usage_is_one_chunk_and_only_if_asked(
    usage: Literal["final", "never", "every"], n: int, options: Any, asked: bool
) -> None:
    fields = {} if options == "absent" else {"stream_options": options}

    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(usage=usage))
        async with gateway_before(node) as running:
            answer = await running.chat(("x-request-id", "one"), stream=True, n=n, **fields)
            assert answer.events[-1] == "[DONE]"
            with_usage = [chunk for chunk in answer.chunks if "usage" in chunk]
            assert len(with_usage) == asked
            if asked:
                assert answer.chunks[-1] is with_usage[0] or answer.chunks[-1] == with_usage[0]
                assert with_usage[0]["choices"] == []
                assert with_usage[0]["usage"]["completion_tokens"] == 16 * n
            assert node.received[0].json()["stream_options"] == {"include_usage": True}
            record = running.record("one")
            assert record.completion_tokens == 16 * n
            assert record.estimated == (usage == "never")
            finishes = [c["choices"][0] for c in answer.chunks if c["choices"]]
            ended = sorted(x["index"] for x in finishes if x["finish_reason"] is not None)
            assert ended == list(range(n))

    run(scenario())


def test_an_answer_without_tokens_has_its_usage() -> None:
    events, text, count = stream_of(Behaviour(tokens=()), stream_options={"include_usage": True})
    assert (text, count) == ("", 0)
    assert '"completion_tokens":0' in events[-2]


def test_an_answer_that_is_not_streamed_has_usage_even_if_the_node_tells_none() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode(behaviour=Behaviour(usage="never"))) as running:
            answer = await running.chat(("x-request-id", "one"))
            assert answer.json()["usage"]["completion_tokens"] > 0
            assert running.record("one").estimated

    run(scenario())
