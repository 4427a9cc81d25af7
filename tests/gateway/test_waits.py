"""What clients and operators see of predicted waits, deadlines and refusals."""

import asyncio
from dataclasses import replace

import pytest

from headway.clock import ManualClock
from headway.config import KeyConfig
from headway.core.tier import DEFAULT_TIERS, Tiers
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import eventually, gateway_before, run

A = KeyConfig(key="ka", tenant="a")
BULK = KeyConfig(key="kb", tenant="b", highest_tier="bulk", default_tier="bulk")


def bearer(key: KeyConfig) -> tuple[str, str]:
    return ("authorization", f"Bearer {key.key}")


def test_an_unknown_caller_is_told_how_to_say_who_it_is() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode(), keys=(A,)) as running:
            for answer in (await running.chat(), await running.get("/v1/models")):
                assert answer.status == 401
                assert answer.headers["www-authenticate"] == "Bearer"
            assert "www-authenticate" not in (await running.chat(bearer(A), temperature=9)).headers

    run(scenario())


def test_no_capacity_is_worth_another_try_in_a_second() -> None:
    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node) as running:
            running.gateway.pool.refused(running.gateway.pool.nodes[0])
            answer = await running.chat()
            assert (answer.status, answer.error["code"]) == (503, "no_capacity")
            assert answer.headers["retry-after"] == "1"

    run(scenario())


@pytest.mark.parametrize("value", [0, -1, 10**400, "60"], ids=["0", "-1", "huge", "text"])
def test_a_deadline_that_is_none_is_refused(value: object) -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running:
            answer = await running.chat(vllm_xargs={"headway_deadline_s": value})
            assert answer.status == 400
            assert answer.error["param"] == "vllm_xargs.headway_deadline_s"

    run(scenario())


@pytest.mark.parametrize(("key", "priority", "promoted"), [(A, "0", True), (BULK, "1", False)])
def test_bulk_that_would_be_late_is_served_as_normal_by_who_may(
    key: KeyConfig, priority: str, promoted: bool
) -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        clock = ManualClock(100.0)
        async with gateway_before(node, keys=(A, BULK), clock=clock, max_inflight=1) as running:
            first = asyncio.create_task(running.chat(bearer(A)))
            await node.wait_received(1)
            fields = {"vllm_xargs": {"headway_deadline_s": 100}}
            headers = (bearer(key), ("x-priority", "bulk"), ("x-request-id", "dated"))
            dated = asyncio.create_task(running.chat(*headers, **fields))
            await eventually(lambda: running.queued() == 1)
            clock.advance(95.0)
            gate.set()
            assert (await first).status == 200
            assert (await dated).status == 200
            assert node.received[-1].header("x-vllm-priority") == [priority]
            xargs = node.received[-1].json()["vllm_xargs"]
            left_s = pytest.approx(5.0)
            assert xargs == {
                "headway_tenant": key.tenant,
                "headway_weight": key.weight,
                "headway_deadline_s": left_s,
            }
            record = running.record("dated", key.tenant)
            assert (record.used_tier, record.promoted) == ("bulk", promoted)

    run(scenario())


def test_explain_says_the_predicted_wait_and_metrics_how_it_came_out() -> None:
    tiers = Tiers(tuple(replace(tier, queue_timeout_s=None) for tier in DEFAULT_TIERS))

    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node, tiers=tiers, max_inflight=1) as running:
            for burst in range(4):
                name = f"last{burst}"
                flood = [asyncio.create_task(running.chat()) for _ in range(12)]
                flood.append(asyncio.create_task(running.chat(("x-request-id", name))))
                for task in flood:
                    assert (await task).status == 200
            told = (await running.get("/v1/qos/explain/last3")).json()
            assert told["promoted"] is False
            assert told["wait_p90_ms"] >= 0
            judged = await running.metric('headway_wait_estimates_total{tier="normal"}')
            within = await running.metric('headway_wait_within_p90_total{tier="normal"}')
            assert judged >= within >= 0
            assert judged > 10

    run(scenario())


def test_a_full_gateway_gives_up_bulk_for_normal() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, max_inflight=1, max_queued_total=2) as running:
            first = asyncio.create_task(running.chat())
            await node.wait_received(1)
            bulk = [asyncio.create_task(running.chat(("x-priority", "bulk")))]
            await eventually(lambda: running.queued() == 1)
            bulk.append(asyncio.create_task(running.chat(("x-priority", "bulk"))))
            await eventually(lambda: running.queued() == 2)
            normal = asyncio.create_task(running.chat())
            evicted = await bulk[1]
            assert (evicted.status, evicted.error["code"]) == (429, "resource_unavailable")
            assert 1 <= int(evicted.headers["retry-after"]) <= 120
            gate.set()
            for task in (first, normal, bulk[0]):
                assert (await task).status == 200

    run(scenario())
