"""A request travels from a client to a node and back; the official client included."""

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI

from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import CHAT, COMPLETIONS, MODEL, Running, chat_body, gateway_before, run

TEXT = "".join(f"tok{index} " for index in range(16))


def client(running: Running) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=running.url, api_key="any", max_retries=0)


def test_the_official_client_chats() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running, client(running) as openai:
            whole = await openai.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hi"}],
                n=2,
                max_tokens=4,
                service_tier="priority",
            )
            assert [c.message.content for c in whole.choices] == ["tok0 tok1 tok2 tok3 "] * 2
            assert whole.choices[0].finish_reason == "length"
            assert whole.usage is not None
            assert whole.usage.completion_tokens == 8
            assert whole.service_tier == "priority"
            stream = await openai.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
            text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
            assert text == TEXT
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.completion_tokens == 16
            assert all(chunk.service_tier == "default" for chunk in chunks)

    run(scenario())


def test_the_official_client_completes() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running, client(running) as openai:
            whole = await openai.completions.create(model=MODEL, prompt="hi", max_tokens=3, seed=1)
            assert whole.choices[0].text == "tok0 tok1 tok2 "
            stream = await openai.completions.create(model=MODEL, prompt=[1, 2, 3], stream=True)
            assert "".join([chunk.choices[0].text async for chunk in stream]) == TEXT
            assert [model.id async for model in openai.models.list()] == [MODEL]
            assert (await openai.models.retrieve(MODEL)).id == MODEL

    run(scenario())


def test_a_hundred_streams_at_once() -> None:
    async def scenario() -> None:
        node = FakeNode(max_num_seqs=32)
        async with gateway_before(node) as running, client(running) as openai:

            async def one() -> str:
                stream = await openai.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
                )
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            assert set(await asyncio.gather(*(one() for _ in range(100)))) == {TEXT}
            assert node.peak <= 32

    run(scenario())


def test_the_answer_says_how_it_was_served() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running:
            for fields in ({}, {"stream": True}):
                answer = await running.chat(("x-priority", "critical"), **fields)
                assert answer.status == 200
                assert answer.headers["x-headway-tier"] == "critical"
                assert answer.headers["x-headway-node"] == "n0"
                assert int(answer.headers["x-headway-queue-ms"]) < 1000
                assert answer.headers["x-request-id"]
            assert "text/event-stream" in answer.headers["content-type"]
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["x-accel-buffering"] == "no"
            assert "content-encoding" not in answer.headers
            assert {chunk["service_tier"] for chunk in answer.chunks} == {"priority"}
            assert answer.events[-1] == "[DONE]"

    run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, chat_body(temperature="hot"), "temperature"),
        (CHAT, chat_body(max_tokens=0), "max_tokens"),
        (CHAT, chat_body(messages=[]), "messages"),
        (CHAT, chat_body(service_tier="turbo"), "service_tier"),
        (CHAT, chat_body(service_tier=3), "service_tier"),
        (CHAT, chat_body(stream_options={"include_usage": True}), "stream_options"),
        (CHAT, b'{"messages": []}', None),
        (CHAT, b"{", None),
        (CHAT, b'{"model": "\xff"}', None),
        (CHAT, b"", None),
        (COMPLETIONS, json.dumps({"model": MODEL, "prompt": ""}).encode(), "prompt"),
    ],
)
def test_a_wrong_body_is_refused_by_name_and_never_sent(
    path: str, body: bytes, param: str | None
) -> None:
    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node) as running:
            answer = await running.send(path, body)
            assert answer.status == 400
            assert param is None or answer.error["param"] == param
            assert answer.headers["x-should-retry"] == "false"
            assert not node.received
            assert (await running.chat()).status == 200

    run(scenario())


def test_other_refusals() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode(), max_body_bytes=1024) as running:
            assert (await running.send(CHAT, b" " * 2000)).status == 413
            answer = await running.chat(model="gpt-17")
            assert (answer.status, answer.error["code"]) == (404, "model_not_found")
            answer = await running.get(CHAT)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
            answer = await running.get("/v2/nothing")
            assert (answer.status, answer.error["code"]) == (404, "unknown_url")
            answer = await running.chat(("content-encoding", "gzip"))
            assert (answer.status, answer.error["param"]) == (415, "Content-Encoding")
            for name in ("X-Priority", "authorization", "x-request-id"):
                answer = await running.chat((name, "bulk"), (name, "critical"))
                assert (answer.status, answer.error["param"]) == (400, name)
            answer = await running.get("/v1/models/none")
            assert answer.status == 404
            assert (await running.chat()).status == 200

    run(scenario())


def test_the_node_gets_our_word_only() -> None:
    """Trial A7 (2) and (6)."""

    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node) as running:
            headers = [
                ("x-vllm-priority", "-100"),
                ("x-llm-d-inference-objective", "top"),
                ("x-headway-tier", "critical"),
                ("x-priority", "bulk"),
                ("x-request-id", "mine"),
            ]
            xargs = {"headway_tenant": "other", "headway_weight": 99, "evil": 1}
            answer = await running.chat(
                *headers,
                priority=-100,
                service_tier="priority",
                cache_salt="x",
                vllm_xargs=xargs,
            )
            assert answer.status == 200
            (got,) = node.received
            assert got.header("x-vllm-priority") == ["1"]
            sent = {name for name, _ in got.headers}
            allowed = {"host", "accept", "content-type", "content-length"}
            assert sent <= allowed | {"x-vllm-priority", "x-request-id"}
            assert got.header("x-request-id") != ["mine"]
            body = got.json()
            assert {"priority", "service_tier"}.isdisjoint(body)
            assert body["vllm_xargs"] == {"headway_tenant": "default", "headway_weight": 1.0}
            assert body["cache_salt"] != "x"

    run(scenario())


def test_pages() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running:
            for path in ("/health", "/ready"):
                answer = await running.get(path)
                assert (answer.status, answer.json()) == (200, {"status": "ok"})
            answer = await running.get("/openapi.json")
            assert answer.status == 200
            paths: dict[str, Any] = answer.json()["paths"]
            assert {CHAT, COMPLETIONS, "/v1/models", "/v1/qos/explain/{id}"} <= set(paths)
            answer = await running.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain")

    run(scenario())


def test_a_long_prefill_is_bridged_with_comments() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate, gate_after=0))
        async with gateway_before(node, heartbeat_s=0.05) as running:
            connection = await running.open_chat(stream=True)
            head = await connection.read_until(b": keep-alive\n\n")
            assert head.startswith(b"HTTP/1.1 200")
            gate.set()
            rest = await connection.reader.read()
            assert b"tok15" in rest
            assert rest.rstrip().endswith(b"0")
            connection.leave()

    run(scenario())
