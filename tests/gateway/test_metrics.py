"""The metrics of a running gateway (trials I1, I2 and I3)."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from headway.clock import ManualClock
from headway.config import KeyConfig
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import Running, eventually, gateway_before, run


async def series(running: Running) -> dict[str, set[tuple[str, ...]]]:
    """Return the label values of every series by name; fails when the page cannot be parsed."""
    page = (await running.get("/metrics")).body
    assert len(page) < 1_000_000
    found: dict[str, set[tuple[str, ...]]] = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(tuple(sample.labels.values()))
    return found


def test_labels_from_outside_are_bounded() -> None:
    """I1."""
    keys = [KeyConfig(key=f"k{index}", tenant=f"t{index}") for index in range(30)]

    async def scenario() -> None:
        async with gateway_before(FakeNode(), keys=keys, top_tenants=5) as running:
            for index, key in enumerate(keys):
                bearer = ("authorization", f"Bearer {key.key}")
                assert (await running.chat(bearer)).status == 200
                odd = 'x"\n\\' + "y" * 400 + str(index)
                assert (await running.chat(bearer, model=odd, user=odd)).status == 404
                await running.get(f"/random/{index}")
                await running.chat(bearer, ("x-priority", odd[:1] + str(index)))
            before = await series(running)
            for index in range(30):
                bearer = ("authorization", f"Bearer {keys[index].key}")
                await running.chat(bearer, model=f"again{index}")
            assert await series(running) == before
            labels = before["headway_requests_total"]
            assert len({row[1] for row in labels}) <= 3
            flat = {value for row in labels for value in row}
            tenants = flat & {key.tenant for key in keys}
            assert len(tenants) == 5
            assert {"other", "unknown", "fake-model"} <= flat

    run(scenario())


def test_gauges_are_true_at_once() -> None:
    """I3: everything leaves at the same moment."""

    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        async with gateway_before(node, max_inflight=5) as running:
            flood = [await running.open_chat(("x-priority", "bulk")) for _ in range(12)]
            await eventually(lambda: running.queued() == 8 and len(node.received) == 4)
            assert await running.metric('headway_queue_depth{tier="bulk"}') == 8
            assert await running.metric('headway_inflight{node="n0",tier="bulk"}') == 4
            assert await running.metric('headway_queue_tokens{tier="bulk"}') > 8
            for connection in flood:
                connection.leave()
            await running.gateway.exchanges.wait_idle()
            assert await running.metric('headway_queue_depth{tier="bulk"}') == 0
            assert await running.metric('headway_inflight{node="n0",tier="bulk"}') == 0
            assert (
                await running.metric('headway_requests_total{model="fake-model",outcome="can') == 12
            )

    run(scenario())


def test_durations_begin_at_the_gateway() -> None:
    """I2: 90 s in the queue are in the queue's histogram, in TTFT and in the whole."""

    async def scenario() -> None:
        clock = ManualClock(1000.0)
        gate = asyncio.Event()
        node = FakeNode(behaviour=Behaviour(gate=gate))
        async with gateway_before(node, clock=clock, max_inflight=1) as running:
            bulk = ("x-priority", "bulk")
            first = asyncio.create_task(running.chat(bulk))
            await node.wait_received(1)
            second = asyncio.create_task(running.chat(bulk, stream=True))
            await eventually(lambda: running.queued() == 1)
            clock.advance(90.0)
            gate.set()
            assert (await first).status == (await second).status == 200
            assert int((await second).headers["x-headway-queue-ms"]) == 90_000
            wait = 'headway_queue_wait_seconds_sum{outcome="dispatched",tier="bulk"}'
            assert await running.metric(wait) == 90
            assert (
                await running.metric('headway_time_to_first_token_seconds_sum{tier="bulk"}') == 90
            )
            above = 'headway_time_to_first_token_seconds_bucket{le="80.0",tier="bulk"}'
            assert await running.metric(above) == 0
            whole = 'headway_e2e_request_latency_seconds_sum{tier="bulk"}'
            assert await running.metric(whole) == 180
            count = 'headway_e2e_request_latency_seconds_count{tier="bulk"}'
            assert await running.metric(count) == 2

    run(scenario())


def test_refused_and_cancelled_requests_do_not_count_as_fast() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        async with gateway_before(node) as running:
            await running.chat(temperature=99)
            left = await running.open_chat()
            await node.wait_received(1)
            left.leave()
            await running.gateway.exchanges.wait_idle()
            assert await running.metric("headway_e2e_request_latency_seconds_count") == 0

    run(scenario())


def test_served_tokens_are_counted() -> None:
    async def scenario() -> None:
        async with gateway_before(FakeNode()) as running:
            await running.chat(stream=True)
            who = '{model="fake-model",tenant="default",tier="normal"}'
            assert await running.metric(f"headway_generation_tokens_total{who}") == 16
            assert await running.metric(f"headway_prompt_tokens_total{who}") > 0
            gaps = await running.metric('headway_inter_token_latency_seconds_count{tier="normal"}')
            assert gaps <= 15

    run(scenario())
