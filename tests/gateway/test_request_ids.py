"""The client chooses a request id, and may ask what happened to it (trial D3)."""

import asyncio

import pytest

from headway.config import KeyConfig
from headway.gateway.access_log import Record
from headway.gateway.explain import ExplainRing
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import gateway_before, run

A = KeyConfig(key="ka", tenant="a")
B = KeyConfig(key="kb", tenant="b")
AS_A = ("authorization", "Bearer ka")
AS_B = ("authorization", "Bearer kb")
ABC = ("x-request-id", "abc")


def test_requests_of_one_id_do_not_meet() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, keys=(A, B), max_inflight=16) as running:
            left = await running.open_chat(AS_A, ABC)
            await node.wait_received(1)
            others = [
                asyncio.create_task(
                    running.chat(AS_A if index % 2 else AS_B, ABC, stream=index > 4)
                )
                for index in range(7)
            ]
            await node.wait_received(8)
            left.leave()
            await node.wait_for(lambda: node.cancelled == 1)
            gate.set()
            answers = await asyncio.gather(*others)
            assert {(one.status, one.headers["x-request-id"]) for one in answers} == {(200, "abc")}
            ids = {got.header("x-request-id")[0] for got in node.received}
            assert len(ids) == 8
            assert "abc" not in ids

    run(scenario())


def test_an_id_may_come_again_after_its_end() -> None:
    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node) as running:
            for tier in ("bulk", "critical"):
                answer = await running.chat(ABC, ("x-priority", tier))
                assert (answer.status, answer.headers["x-request-id"]) == (200, "abc")
                assert running.record("abc").used_tier == tier
            ids = [got.header("x-request-id") for got in node.received]
            assert ids[0] != ids[1]

    run(scenario())


@pytest.mark.parametrize("value", ["", "x" * 5000, "caf\xe9", "a\tb"])
def test_an_id_that_is_not_fit_to_be_echoed_is_replaced(value: str) -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running:
            answer = await running.chat(("x-request-id", value))
            assert answer.status == 200
            assert answer.headers["x-request-id"].startswith("req-")

    run(scenario())


def test_only_its_tenant_learns_of_a_request() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode(), keys=(A, B)) as running:
            answer = await running.chat(AS_A, ABC, ("x-priority", "critical"))
            ours = answer.json()["id"]
            for id in (ours, ours.removeprefix("chatcmpl-"), "abc"):
                told = await running.get(f"/v1/qos/explain/{id}", [AS_A])
                assert told.status == 200
                record = told.json()
                assert (record["asked_tier"], record["used_tier"]) == ("critical", "normal")
                assert (record["node"], record["outcome"]) == ("n0", "completed")
                assert record["queue_ms"] >= 0
                hidden = await running.get(f"/v1/qos/explain/{id}", [AS_B])
                assert (hidden.status, hidden.error["code"]) == (404, "request_not_found")
            assert (await running.get("/v1/qos/explain/abc")).status == 401
            assert (await running.get("/v1/qos/explain/../../x", [AS_A])).status == 404

    run(scenario())


def record(id: str, client_id: str, tenant: str | None = "t") -> Record:
    return Record(
        id=id,
        client_id=client_id,
        path="/",
        tenant=tenant,
        model=None,
        stream=False,
        asked_tier=None,
        used_tier=None,
        wait_p90_ms=None,
        promoted=False,
        queue_ms=0.0,
        node=None,
        attempts=0,
        ttft_ms=None,
        e2e_ms=0.0,
        prompt_tokens=0,
        completion_tokens=0,
        cached_tokens=0,
        estimated=False,
        outcome="completed",
        detail=None,
    )


def test_the_memory_is_bounded() -> None:
    ring = ExplainRing(size=10)
    for index in range(100):
        ring.add(record(f"r{index}", f"c{index}"))
    ring.add(record("nobody", "x", None))
    assert len(ring) == 10
    assert ring.find("t", "r89") is None
    assert ring.find("t", "c89") is None
    found = ring.find("t", "c99")
    assert found is not None
    assert found.id == "r99"
    assert ring.find("t", "nobody") is None
