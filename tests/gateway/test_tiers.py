"""Which request leaves the gateway's queue next, and what its tier is (trials A1, A5, A7, B4)."""

import asyncio
from dataclasses import replace
from typing import Any

from headway.config import KeyConfig
from headway.core.tier import DEFAULT_TIERS, Tiers
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import Answer, Running, eventually, gateway_before, run

A = KeyConfig(key="ka", tenant="a", highest_tier="critical")
B = KeyConfig(key="kb", tenant="b", highest_tier="critical")
C = KeyConfig(key="kc", tenant="c", highest_tier="bulk", default_tier="bulk")


def bearer(key: KeyConfig) -> tuple[str, str]:
    return ("authorization", f"Bearer {key.key}")


class Flood:
    """Requests that are told apart by the text they carry, sent one after the other."""

    def __init__(self, running: Running, node: FakeNode) -> None:
        self._running = running
        self._node = node
        self._open: list[asyncio.Task[Answer]] = []

    async def send(self, text: str, *headers: tuple[str, str], **fields: Any) -> None:
        """Send one, and return when it waits in the queue or is at the node."""
        messages = [{"role": "user", "content": text}]
        request = self._running.chat(*headers, messages=messages, **{"max_tokens": 16, **fields})
        self._open.append(asyncio.create_task(request))
        await eventually(self._seen)

    def _seen(self) -> bool:
        ended = sum(task.done() for task in self._open)
        under_way = len(self._running.gateway.exchanges)
        waiting = self._running.queued() + sum(sum(n.inflight) for n in self._nodes)
        return ended + waiting >= len(self._open) and under_way == waiting

    @property
    def _nodes(self) -> tuple[Any, ...]:
        return self._running.gateway.pool.nodes

    async def answers(self) -> list[Answer]:
        """Return every answer, in the order of sending."""
        return list(await asyncio.gather(*self._open))

    def order(self) -> list[str]:
        """Return the texts in the order in which the node got them."""
        return [got.json()["messages"][0]["content"] for got in self._node.received]


def test_critical_takes_the_next_free_place_and_normal_follows() -> None:
    """Trial A1 (c)."""

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(concurrency=2, behaviour=Behaviour(gate=gate))
        async with gateway_before(node, max_inflight=2) as running:
            flood = Flood(running, node)
            for index in range(20):
                await flood.send(f"bulk{index}", ("x-priority", "bulk"))
            await flood.send("critical", ("x-priority", "critical"))
            await flood.send("normal", ("x-priority", "normal"))
            assert running.queued() == 20
            gate.set()
            assert {answer.status for answer in await flood.answers()} == {200}
            assert flood.order()[:4] == ["bulk0", "bulk1", "critical", "normal"]
            assert len(node.received) == 22
            assert node.peak <= 2

    run(scenario())


def test_first_come_first_served_is_the_other_policy() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, max_inflight=1, policy="fcfs") as running:
            flood = Flood(running, node)
            for index in range(5):
                await flood.send(f"bulk{index}", ("x-priority", "bulk"))
            await flood.send("critical", ("x-priority", "critical"))
            gate.set()
            await flood.answers()
            assert flood.order()[-1] == "critical"

    run(scenario())


def test_one_tenant_with_many_does_not_hold_up_another() -> None:
    """Trial A5 (2): the other tenant waits about one service time."""

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, keys=(A, B), max_inflight=1) as running:
            flood = Flood(running, node)
            for index in range(60):
                await flood.send(f"a{index}", bearer(A))
            await flood.send("b", bearer(B))
            gate.set()
            await flood.answers()
            assert flood.order().index("b") <= 2

    run(scenario())


def test_a_full_queue_makes_room_for_who_has_less() -> None:
    """Trial A5 (4): refusals go to whoever fills the queue."""
    tiers = Tiers(tuple(replace(tier, max_queued=10) for tier in DEFAULT_TIERS))

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, keys=(A, B), tiers=tiers, max_inflight=1) as running:
            flood = Flood(running, node)
            for index in range(14):
                await flood.send(f"a{index}", bearer(A))
            await flood.send("b", bearer(B))
            gate.set()
            answers = await flood.answers()
            assert answers[-1].status == 200
            refused = [answer for answer in answers if answer.status == 429]
            assert len(refused) == 4
            for answer in refused:
                assert answer.error["code"] == "server_overloaded"
                assert 1 <= int(answer.headers["retry-after"]) <= 120
                assert answer.headers["x-should-retry"] == "true"
                assert answer.headers["x-headway-drop-reason"] == "rejected-saturated"
            evicted = await running.metric(
                'headway_requests_total{model="fake-model",outcome="evicted-saturated",tenant="a"'
            )
            rejected = await running.metric(
                'headway_requests_total{model="fake-model",outcome="rejected-saturated",tenant="a"'
            )
            assert evicted + rejected == 4

    run(scenario())


def test_the_bound_on_tokens_bites() -> None:
    """Trial A5 (4): the other bound of the queue is enforced too, and shown."""
    tiers = Tiers(tuple(replace(tier, max_queued_tokens=2000) for tier in DEFAULT_TIERS))

    async def scenario() -> None:
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, tiers=tiers, max_inflight=1) as running:
            flood = Flood(running, node)
            for _ in range(3):
                await flood.send("x" * 4000, max_tokens=10)
            tokens = await running.metric('headway_queue_tokens{tier="normal"}')
            assert 1000 < tokens < 2000
            gate.set()
            statuses = [answer.status for answer in await flood.answers()]
            assert statuses == [200, 200, 429]

    run(scenario())


def test_a_key_is_never_served_above_its_tier() -> None:
    """Trial A7 (1), (2), (5): by header, by body or by silence, and the answer says so."""

    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node, keys=(A, C)) as running:
            for headers, fields in (
                ([("x-priority", "high")], {}),
                ([], {"service_tier": "priority", "priority": -100}),
                ([("x-vllm-priority", "-100")], {}),
                ([], {}),
            ):
                answer = await running.chat(bearer(C), *headers, **fields)
                assert answer.status == 200
                assert answer.headers["x-headway-tier"] == "bulk"
                assert answer.json()["service_tier"] == "flex"
                assert node.received[-1].header("x-vllm-priority") == ["1"]
            assert await running.metric('headway_tier_downgrades_total{asked="critical"') == 2
            answer = await running.chat(bearer(A), ("x-priority", "critical"))
            assert answer.json()["service_tier"] == "priority"
            assert node.received[-1].header("x-vllm-priority") == ["-1"]

    run(scenario())


def test_without_a_key_nobody_is_served() -> None:
    async def scenario() -> None:
        node = FakeNode()
        strict = KeyConfig(key="ks", tenant="s", strict=True)
        async with gateway_before(node, keys=(A, strict)) as running:
            for headers in ([], [("authorization", "Bearer nobody")]):
                answer = await running.chat(*headers)
                assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
                assert (await running.get("/v1/models", headers)).status == 401
            answer = await running.chat(bearer(strict), ("x-priority", "critical"))
            assert (answer.status, answer.error["code"]) == (403, "tier_not_entitled")
            assert answer.headers["x-should-retry"] == "false"
            for value in ("HIGH", "0", "", "999999999999", "high,batch"):
                answer = await running.chat(bearer(A), ("x-priority", value))
                assert (answer.status, answer.error["param"]) == (400, "X-Priority")
            assert not node.received

    run(scenario())


def test_the_salt_of_the_cache_is_the_tenants() -> None:
    """Trial B4: no value that a client sends reaches another tenant's cache."""

    async def scenario() -> None:
        node = FakeNode()
        async with gateway_before(node, keys=(A, B)) as running:

            async def salt(key: KeyConfig, **fields: str) -> str:
                assert (await running.chat(bearer(key), **fields)).status == 200
                value: str = node.received[-1].json()["cache_salt"]
                return value

            of_a = await salt(A)
            assert await salt(A) == of_a
            assert await salt(B) != of_a
            assert await salt(B, cache_salt=of_a) not in (of_a, await salt(B))
            assert await salt(B, cache_salt="a") != of_a
            narrowed = await salt(A, cache_salt="x")
            assert narrowed != of_a
            assert await salt(A, cache_salt="x") == narrowed
            assert await salt(B, cache_salt="x") != narrowed

    run(scenario())
