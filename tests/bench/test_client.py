"""Is a streamed request sent as asked, timed as it came, and every failure kept as its error?"""

import asyncio
from random import Random

import pytest

from headway.bench.client import BenchClient, Server, calibrate
from headway.bench.prompts import WORDS, PromptSource
from headway.bench.records import RequestRecord
from headway.clock import ManualClock
from headway.errors import NodeError
from headway.gateway.fake_answers import Behaviour
from headway.gateway.fake_node import FakeNode

TOKENS = tuple(f"t{index} " for index in range(256))


def send_one(
    behaviour: Behaviour, *, max_tokens: int = 4, server: Server | None = None
) -> tuple[RequestRecord, FakeNode]:
    """Send one critical request to a fake node; each look at the clock takes a second."""
    clock = ManualClock()

    def now() -> float:
        clock.advance(1)
        return clock.now()

    async def scenario() -> tuple[RequestRecord, FakeNode]:
        node = FakeNode(behaviour=behaviour)
        await node.start()
        record = RequestRecord(tier="critical", sent_s=0.0)
        to = Server(base_url=node.url) if server is None else server
        to = Server(base_url=node.url, api_key=to.api_key, priorities=to.priorities)
        async with BenchClient(to) as client:
            await client.send(record, "some words", max_tokens, now)
        await node.stop()
        return record, node

    return asyncio.run(scenario())


def test_every_piece_is_timed_and_the_usage_kept() -> None:
    record, _ = send_one(Behaviour(tokens=TOKENS))
    assert record.error is None
    assert record.finished
    assert len(record.chunk_s) >= 4
    assert record.num_output_tokens == 4
    assert record.ttft_s == record.chunk_s[0] >= 1
    assert record.chunk_s == sorted(record.chunk_s)


def test_the_request_is_greedy_of_exact_length_and_says_its_tier() -> None:
    server = Server(base_url="", api_key="secret", priorities={"critical": -1})
    _, node = send_one(Behaviour(tokens=TOKENS), server=server)
    (request,) = node.received
    assert request.path == "/v1/completions"
    assert request.json() == {
        "model": "fake-model",
        "prompt": "some words",
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "priority": -1,
    }
    assert request.header("x-priority") == ["critical"]
    assert request.header("authorization") == ["Bearer secret"]


def test_without_priorities_the_body_holds_none() -> None:
    _, node = send_one(Behaviour(tokens=TOKENS))
    assert "priority" not in node.received[0].json()


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Behaviour(status=503), "503: "),
        (Behaviour(tokens=TOKENS, die_after=2), "ClientPayloadError"),
        (Behaviour(tokens=TOKENS, die_after=-1), "ServerDisconnectedError"),
        (Behaviour(tokens=TOKENS, error_after=1), "told to fail"),
        (Behaviour(tokens=TOKENS, malformed_after=1), "DecodeError"),
        (Behaviour(tokens=TOKENS, done=False), "ended without [DONE]"),
        (Behaviour(tokens=TOKENS[:3]), "3 tokens came, 4 were asked"),
        (Behaviour(tokens=TOKENS, usage="never"), "0 tokens came, 4 were asked"),
    ],
)
def test_each_failure_is_the_record_s_error(behaviour: Behaviour, error: str) -> None:
    record, _ = send_one(behaviour)
    assert record.error is not None
    assert error in record.error


@pytest.mark.parametrize(
    "base_url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"]
)
def test_a_base_url_may_end_with_v1_or_not(base_url: str) -> None:
    assert Server(base_url=base_url).api_root == "http://h:1/v1"


def test_a_server_that_is_not_there_is_named() -> None:
    async def scenario() -> None:
        node = FakeNode()
        await node.start()
        await node.stop()
        with pytest.raises(NodeError, match=rf"{node.url}/v1/models does not answer"):
            await BenchClient(Server(base_url=node.url)).__aenter__()

    asyncio.run(scenario())


def test_calibration_makes_texts_of_the_asked_length() -> None:
    async def scenario() -> RequestRecord:
        node = FakeNode(behaviour=Behaviour(tokens=TOKENS))
        await node.start()
        prompts = PromptSource(Random(0))
        record = RequestRecord(tier="bulk", sent_s=0.0)
        async with BenchClient(Server(base_url=node.url)) as client:
            await calibrate(client, prompts, "bulk")
            await client.send(record, prompts.text(400), 1, lambda: 0.0)
        await node.stop()
        return record

    # The fake node counts bytes, so a word is several tokens and varies more than in a model.
    assert asyncio.run(scenario()).num_prompt_tokens == pytest.approx(400, rel=0.2)


def test_calibration_fails_loudly() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(status=500, error_message="no luck"))
        await node.start()
        async with BenchClient(Server(base_url=node.url)) as client:
            with pytest.raises(NodeError, match=r"the first request failed: 500.*no luck"):
                await calibrate(client, PromptSource(Random(0)), "bulk")
        await node.stop()

    asyncio.run(scenario())


def test_texts_share_no_beginning() -> None:
    prompts = PromptSource(Random(0))
    beginnings = {tuple(prompts.text(400).split()[:8]) for _ in range(1000)}
    assert len(beginnings) == 1000
    assert len(set(WORDS)) == len(WORDS)
