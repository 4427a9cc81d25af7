"""Does the official client get what it expects of a real model behind the whole stack?"""

import asyncio
import re
from collections.abc import Iterator

import aiohttp
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from headway.bench.stack import Stack

MODEL = "smollm2-135m"
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name three rivers."}]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with asyncio.Runner() as runner:
        stack = Stack("qos", settings={"engine.num_kv_blocks": 2048})
        runner.run(stack.__aenter__())
        try:
            yield stack.url
        finally:
            runner.run(stack.__aexit__())


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client
    asyncio.run(_wait_until_idle(url))


async def _wait_until_idle(url: str) -> None:
    """I0: within a few scrapes nothing is queued, nothing in flight."""
    async with aiohttp.ClientSession() as session:
        async with asyncio.timeout(10):
            while True:
                async with session.get(f"{url}/metrics") as response:
                    text = await response.text()
                gauges = re.findall(r"^headway_(?:queue_depth|inflight)\{.*\} (\S+)$", text, re.M)
                assert gauges
                if all(float(value) == 0 for value in gauges):
                    return


def test_chat_whole_and_streamed_are_the_same_text(client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=24, temperature=0, service_tier="priority"
    )
    stream = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        service_tier="flex",
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert whole.service_tier == "priority"
    assert {chunk.service_tier for chunk in chunks} == {"flex"}
    assert whole.usage is not None
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert len(usages) == 1
    assert chunks[-1].choices == []
    assert usages[0].prompt_tokens == whole.usage.prompt_tokens
    assert usages[0].completion_tokens == whole.usage.completion_tokens


def test_completions_with_logprobs_stop_n_and_seed(client: OpenAI) -> None:
    one = client.completions.create(
        model=MODEL, prompt="One, two, three,", max_tokens=12, temperature=0, logprobs=2
    )
    choice = one.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert all(value is not None and value <= 0 for value in choice.logprobs.token_logprobs)

    cut = client.completions.create(
        model=MODEL, prompt="One, two, three,", max_tokens=12, temperature=0, stop=choice.text[5:9]
    )
    assert cut.choices[0].finish_reason == "stop"
    assert choice.text[5:9] not in cut.choices[0].text
    assert choice.text.startswith(cut.choices[0].text)

    def draw() -> list[str]:
        drawn = client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=10, temperature=1.0, seed=7, n=2
        )
        return [c.message.content or "" for c in sorted(drawn.choices, key=lambda c: c.index)]

    first, again = draw(), draw()
    assert first == again
    assert first[0] != first[1]


def test_chat_logprobs(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.token == token.top_logprobs[0].token


def test_bad_input_names_the_field_and_the_next_request_works(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="Hello", max_tokens=100_000)
    assert caught.value.param == "max_tokens"
    with pytest.raises(BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="word " * 20_000, max_tokens=1)
    assert caught.value.param == "prompt"
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="Hello", extra_headers={"X-Priority": "top"})
    assert caught.value.param == "X-Priority"
    assert client.completions.create(model=MODEL, prompt="Hello", max_tokens=1).choices


def test_a_hundred_streams_at_once(url: str, client: OpenAI) -> None:
    tiers = ("critical", "normal", "bulk")

    async def one(many: AsyncOpenAI, index: int) -> str:
        stream = await many.completions.create(
            model=MODEL,
            prompt=f"Number {index % 10} is",
            max_tokens=8,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
            extra_headers={"X-Priority": tiers[index % 3]},
        )
        texts = [chunk.choices[0].text async for chunk in stream if chunk.choices]
        return "".join(texts)

    async def scenario() -> list[str]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=240) as many:
            return await asyncio.gather(*(one(many, index) for index in range(100)))

    texts = asyncio.run(scenario())
    assert len(texts) == 100
    assert all(texts)
