"""Does the official client get what it asks of the engine's server?"""

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from headway.engine.byte_tokenizer import EOS_TOKEN_ID
from tests.engine.server_stage import CHAT, MODEL, GatedRunner, Stage, stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
RENDERED = "user: hi\nassistant: "


def client_of(one: Stage) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0)


def scripted(answer: str, prompt: str = RENDERED) -> GatedRunner:
    script = (*answer.encode(), EOS_TOKEN_ID)
    return GatedRunner(num_blocks=512, scripts={tuple(prompt.encode()): script})


def test_a_chat_whole_and_streamed_say_the_same() -> None:
    with stage(runner=scripted("Grüße 👩‍👩‍👧!")) as one, client_of(one) as client:
        whole = client.chat.completions.create(model=MODEL, messages=HELLO)
        assert whole.choices[0].message.content == "Grüße 👩‍👩‍👧!"
        assert whole.choices[0].message.role == "assistant"
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage is not None
        assert whole.usage.prompt_tokens == len(RENDERED)
        chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == "Grüße 👩‍👩‍👧!"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"
        assert len({chunk.id for chunk in chunks}) == 1


def test_a_completion_whole_and_streamed_say_the_same() -> None:
    with stage(runner=scripted("world", "hello ")) as one, client_of(one) as client:
        whole = client.completions.create(model=MODEL, prompt="hello ", temperature=0)
        assert whole.choices[0].text == "world"
        assert whole.object == "text_completion"
        chunks = client.completions.create(model=MODEL, prompt="hello ", temperature=0, stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == "world"


def test_a_stop_string_ends_the_answer_in_both_modes() -> None:
    with stage(runner=scripted("Hello world###END tail")) as one, client_of(one) as client:
        for stop in ("###END", ["nope", "###END"]):
            whole = client.chat.completions.create(model=MODEL, messages=HELLO, stop=stop)
            assert whole.choices[0].message.content == "Hello world"
            assert whole.choices[0].finish_reason == "stop"
            chunks = client.chat.completions.create(
                model=MODEL, messages=HELLO, stop=stop, stream=True
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert text == "Hello world"


def test_a_seed_gives_the_same_answer_again() -> None:
    with stage() as one:
        first, again, other = (
            one.complete(seed=seed, max_tokens=20, return_token_ids=True).json()
            for seed in (7, 7, 8)
        )
        ids = [answer["choices"][0]["token_ids"] for answer in (first, again, other)]
        assert ids[0] == ids[1] != ids[2]


def test_several_prompts_have_n_choices_each() -> None:
    with stage() as one:
        fields = {"prompt": ["a", "b", "c"], "n": 2, "max_tokens": 4, "return_token_ids": True}
        whole = one.complete(**fields, temperature=0).json()
        assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3, 4, 5]
        shown = [choice["prompt_token_ids"] for choice in whole["choices"]]
        assert shown == [[97], [97], [98], [98], [99], [99]]
        assert whole["usage"]["prompt_tokens"] == 3
        ids = {choice["index"]: choice["token_ids"] for choice in whole["choices"]}
        streamed: dict[int, list[int]] = {}
        for event in one.complete(**fields, temperature=0, stream=True).events[:-1]:
            for choice in event["choices"]:
                streamed.setdefault(choice["index"], []).extend(choice["token_ids"])
        assert streamed == ids


def test_the_prompt_of_a_chat_is_shown_once_when_asked() -> None:
    with stage() as one:
        fields = {"n": 2, "max_tokens": 4, "temperature": 0, "return_token_ids": True}
        whole = one.chat(**fields).json()
        assert bytes(whole["prompt_token_ids"]).decode() == RENDERED
        events = one.chat(**fields, stream=True).events[:-1]
        shown = [event for event in events if "prompt_token_ids" in event]
        assert shown == events[:1]
        assert shown[0]["prompt_token_ids"] == whole["prompt_token_ids"]
        plain = one.chat(max_tokens=4, stream=True).events[:-1]
        assert not any("prompt_token_ids" in event for event in plain)


def test_token_ids_are_a_prompt_too() -> None:
    with stage(runner=scripted("x", "hello ")) as one:
        ids = list(b"hello ")
        assert one.complete(prompt=ids).json()["choices"][0]["text"] == "x"
        assert one.complete(prompt=[ids]).json()["choices"][0]["text"] == "x"


def test_a_hundred_streams_at_once() -> None:
    async def all_of(one: Stage) -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{one.url}/v1", api_key="none", max_retries=0
        ) as client:

            async def ask(at: int) -> str:
                stream = await client.completions.create(
                    model=MODEL, prompt=f"{at}", max_tokens=16, temperature=0, stream=True
                )
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*(ask(at) for at in range(100)))

    with stage(engine={"max_num_seqs": 32}) as one:
        texts = asyncio.run(all_of(one))
        alone = [one.complete(prompt=f"{at}", temperature=0) for at in (0, 50, 99)]
        assert [texts[at] for at in (0, 50, 99)] == [
            answer.json()["choices"][0]["text"] for answer in alone
        ]


def test_the_cached_part_of_a_prompt_is_counted() -> None:
    with stage() as one:
        fields = {"prompt": "x" * 100, "max_tokens": 1}
        first, again = (one.complete(**fields).json()["usage"] for _ in range(2))
        assert first["prompt_tokens_details"] == {"cached_tokens": 0}
        assert again["prompt_tokens_details"] == {"cached_tokens": 96}
        salted = one.complete(**fields, cache_salt="other").json()["usage"]
        assert salted["prompt_tokens_details"] == {"cached_tokens": 0}
        tenant = one.complete(**fields, vllm_xargs={"headway_tenant": "t"}).json()["usage"]
        assert tenant["prompt_tokens_details"] == {"cached_tokens": 0}


@pytest.mark.parametrize(
    ("header", "body", "tier"),
    [
        (None, None, "normal"),
        ("-5", None, "critical"),
        (None, 1, "bulk"),
        (None, 0, "normal"),
        ("0", -1, "normal"),
        ("+999999999", -1, "bulk"),
    ],
)
def test_header_and_body_say_the_tier_and_the_header_wins(
    header: str | None, body: int | None, tier: str
) -> None:
    with stage() as one:
        one.runner.close_gate()
        headers = [] if header is None else [f"X-Vllm-Priority: {header}"]
        fields = {"max_tokens": 1} if body is None else {"max_tokens": 1, "priority": body}
        with one.connect(fields, *headers) as connection:
            one.runner.wait_for_step()
            names = ("critical", "normal", "bulk")
            found = {
                name: one.metric("headway:num_requests_running", tier=name)
                + one.metric("headway:num_requests_waiting", tier=name)
                for name in names
            }
            assert found == {name: float(name == tier) for name in names}
            one.runner.open_gate()
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_models_and_health() -> None:
    with stage() as one, client_of(one) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        assert client.models.retrieve(MODEL).id == MODEL
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")
        assert one.get("/health").status == 200
        assert one.get("/v1/models").json()["data"][0]["max_model_len"] == 4096


def test_tokenize_and_detokenize() -> None:
    with stage() as one:
        text = one.post("/tokenize", {"prompt": "hé", "return_token_strs": True}).json()
        assert text["tokens"] == list("hé".encode())
        assert (text["count"], text["max_model_len"]) == (3, 4096)
        assert text["token_strs"][0] == "h"
        chat = one.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json()
        assert bytes(chat["tokens"]).decode() == RENDERED
        back = one.post("/detokenize", {"tokens": text["tokens"]}).json()
        assert back == {"prompt": "hé"}


def test_a_final_message_is_continued() -> None:
    with stage() as one:
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hel"}]
        answer = one.post("/tokenize", {"messages": messages, "continue_final_message": True})
        assert bytes(answer.json()["tokens"]).decode() == "user: hi\nassistant: Hel"


def test_the_request_id_of_the_client_is_only_a_label() -> None:
    with stage() as one:
        same = [
            one.post(CHAT, {"messages": HELLO, "max_tokens": 2}, x_request_id="abc")
            for _ in range(10)
        ]
        assert {answer.headers["x-request-id"] for answer in same} == {"abc"}
        assert len({answer.json()["id"] for answer in same}) == 10
        huge = one.post(CHAT, {"messages": HELLO, "max_tokens": 2}, x_request_id="a" * 1000)
        assert huge.headers["x-request-id"].startswith("req-")
