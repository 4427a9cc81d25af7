"""A node fails before or after its first byte (trials A12 and C7)."""

import asyncio
from collections import deque

import pytest

from headway.flowcontrol.nodes import FAILURES_UNTIL_DOWN, NodeState
from headway.gateway.fake_node import Behaviour, FakeNode
from tests.gateway.harness import Answer, Running, eventually, gateway_before, run

TEXT = "".join(f"tok{index} " for index in range(16))
BOTH = pytest.mark.parametrize("stream", [False, True])


def state_of(running: Running) -> NodeState:
    """Return the state of the first node."""
    return running.gateway.pool.nodes[0].state


def first_fails(
    behaviour: Behaviour, *, stream: bool, **settings: float
) -> tuple[Answer, int, int]:
    """Answer one request whose first node behaves badly; return how often each node was asked."""

    async def scenario() -> tuple[Answer, int, int]:
        bad, good = FakeNode(behaviour=behaviour), FakeNode()
        # Critical goes to the least loaded, so of two idle nodes the first is asked first.
        async with gateway_before(bad, good) as running:
            answer = await running.chat(
                ("x-priority", "critical"), ("x-request-id", "one"), stream=stream
            )
            record = running.record("one")
            assert record.attempts == len(bad.received) + len(good.received)
            lines = await running.metric("headway_requests_total{")
            assert lines == 1, "one request, one outcome"
            return answer, len(bad.received), len(good.received)

    return run(scenario())


@BOTH
@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(status=429, retry_after="2"),
        Behaviour(status=429),
        Behaviour(status=500),
        Behaviour(status=503),
        Behaviour(status=401),
        Behaviour(die_after=-1),
        Behaviour(die_after=-1, reset=True),
    ],
    ids=["429-after", "429", "500", "503", "401", "closed", "reset"],
)
def test_before_the_first_byte_another_node_answers(behaviour: Behaviour, stream: bool) -> None:
    """C7 (c) and (d)."""
    answer, bad, good = first_fails(behaviour, stream=stream)
    assert (answer.status, answer.text) == (200, TEXT)
    assert (bad, good) == (1, 1)
    assert answer.headers["x-headway-node"] == "n1"


@BOTH
@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(die_after=0),
        Behaviour(die_after=0, reset=True),
        Behaviour(malformed_after=0),
        Behaviour(error_after=0),
    ],
    ids=["closed", "reset", "malformed", "error-event"],
)
def test_before_the_first_token_another_node_answers(behaviour: Behaviour, stream: bool) -> None:
    answer, _, good = first_fails(behaviour, stream=stream)
    assert (answer.status, answer.text) == (200, TEXT)
    # An error event means nothing in an answer that is not streamed.
    assert good == 1 or (behaviour.error_after == 0 and not stream)


@BOTH
def test_a_refused_connection_goes_to_the_other_node(stream: bool) -> None:
    """C7 (a): the node is out at once, and back when a probe finds it."""

    async def scenario() -> None:
        dead, good = FakeNode(), FakeNode()
        async with gateway_before(dead, good) as running:
            await dead.stop()
            answer = await running.chat(("x-priority", "critical"), stream=stream)
            assert (answer.status, answer.text) == (200, TEXT)
            assert state_of(running) is NodeState.DOWN
            assert await running.metric('headway_node_up{node="n0"}') == 0
            await dead.start()
            await running.probe()
            assert state_of(running) is NodeState.UP
            assert await running.metric('headway_node_up{node="n0"}') == 1
            await running.chat(("x-priority", "critical"), stream=stream)
            assert len(dead.received) == 1

    run(scenario())


@BOTH
@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_what_the_node_calls_wrong_is_passed_on(status: int, stream: bool) -> None:
    """C7 (b)."""
    behaviour = Behaviour(status=status, error_message="context too long")
    answer, bad, good = first_fails(behaviour, stream=stream)
    assert (answer.status, bad, good) == (status, 1, 0)
    assert answer.error["message"] == "context too long"
    assert answer.error["type"] == "invalid_request_error"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(die_after=3),
        Behaviour(die_after=3, reset=True),
        Behaviour(malformed_after=3),
        Behaviour(error_after=3),
        Behaviour(done=False),
    ],
    ids=["closed", "reset", "malformed", "error-event", "no-done"],
)
def test_after_the_first_token_the_stream_says_that_it_failed(behaviour: Behaviour) -> None:
    """C7 (e), (f), (g): no copy of tokens, no silent end, no [DONE] after the error."""
    answer, bad, good = first_fails(behaviour, stream=True)
    assert (answer.status, bad, good) == (200, 1, 0)
    *before, last = answer.chunks
    assert set(last) == {"error"}
    assert last["error"]["code"] == "upstream_error"
    assert "[DONE]" not in answer.events
    said = [c["choices"][0] for c in before]
    text = "".join(choice["delta"].get("content", "") for choice in said)
    if behaviour.done:
        assert text == "tok0 tok1 tok2 "
        assert all(choice["finish_reason"] is None for choice in said)


@pytest.mark.parametrize(
    "behaviour",
    [Behaviour(die_after=3), Behaviour(die_after=3, reset=True), Behaviour(malformed_after=3)],
    ids=["closed", "reset", "malformed"],
)
def test_half_an_answer_is_never_given(behaviour: Behaviour) -> None:
    """C7 (e) and (f), not streamed: tried again, and 502 when that fails too."""
    answer, bad, good = first_fails(behaviour, stream=False)
    assert (answer.status, answer.text, bad, good) == (200, TEXT, 1, 1)

    async def scenario() -> None:
        nodes = FakeNode(behaviour=behaviour), FakeNode(behaviour=behaviour)
        async with gateway_before(*nodes) as running:
            answer = await running.chat()
            assert (answer.status, answer.error["code"]) == (502, "upstream_error")
            assert sum(len(node.received) for node in nodes) == 2

    run(scenario())


def test_delivered_tokens_are_what_counts() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(die_after=3))
        async with gateway_before(node) as running:
            await running.chat(("x-request-id", "one"), stream=True)
            record = running.record("one")
            assert (record.outcome, record.completion_tokens) == ("failed-node", 3)
            assert record.estimated

    run(scenario())


@pytest.mark.parametrize("gate_after", [None, 0])
def test_a_node_that_hangs_before_its_first_byte(gate_after: int | None) -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event(), gate_after=gate_after))
        async with gateway_before(node, first_byte_timeout_s=0.2) as running:
            answer = await running.chat(stream=True)
            assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
            await node.wait_for(lambda: node.cancelled == 1)

    run(scenario())


def test_a_node_that_hangs_in_the_middle() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event(), gate_after=2))
        async with gateway_before(node, gap_timeout_s=0.2) as running:
            answer = await running.chat(("x-request-id", "one"), stream=True)
            assert answer.chunks[-1]["error"]["code"] == "upstream_timeout"
            assert running.record("one").outcome == "failed-timeout"
            await node.wait_for(lambda: node.cancelled == 1)

    run(scenario())


def test_a_node_that_hangs_on_a_whole_answer() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        async with gateway_before(node, first_byte_timeout_s=0.1) as running:
            answer = await running.chat(max_tokens=1)
            assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")

    run(scenario())


def test_a_full_node_is_left_alone_and_its_request_waits() -> None:
    async def scenario() -> None:
        node = FakeNode(script=deque([Behaviour(status=429, retry_after="0")]))
        async with gateway_before(node) as running:
            answer = await running.chat(stream=True)
            assert (answer.status, answer.text) == (200, TEXT)
            assert len(node.received) == 2

    run(scenario())


def test_nodes_that_are_always_full_are_a_429() -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(status=503, retry_after="0"))
        async with gateway_before(node) as running:
            answer = await running.chat()
            assert (answer.status, answer.error["code"]) == (429, "server_overloaded")
            assert int(answer.headers["retry-after"]) >= 1
            assert state_of(running) is NodeState.UP

    run(scenario())


def test_metrics_that_hang_or_lack_a_series_do_not_stop_a_node() -> None:
    """A12 (a) and (b): served at the careful limit, by our own count."""

    async def scenario() -> None:
        gate, answering = asyncio.Event(), asyncio.Event()
        node = FakeNode(metrics_gate=gate, max_num_seqs=64, behaviour=Behaviour(gate=answering))
        async with gateway_before(FakeNode()) as running:
            assert running.gateway.pool.nodes[0].limit == 8
        async with gateway_before(node, probing=True, first_probe=False) as running:
            flood = [asyncio.create_task(running.chat()) for _ in range(20)]
            await eventually(lambda: len(running.gateway.exchanges) == 20)
            await node.wait_received(7)
            assert running.gateway.pool.nodes[0].limit == 8
            assert node.peak <= 8
            gate.set()
            await running.probe()
            assert running.gateway.pool.nodes[0].limit == 64
            await node.wait_received(20)
            answering.set()
            assert {(await one).status for one in flood} == {200}

    run(scenario())


def test_a_node_that_only_fails_is_taken_out_and_tried_again() -> None:
    """A12 (c): /health says 200 all the time."""

    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(status=500))
        async with gateway_before(node) as running:
            for seed in (1, 2):
                assert (await running.chat(seed=seed)).status == 502
            assert len(node.received) == 4
            second = asyncio.create_task(running.chat(seed=3))
            await eventually(lambda: state_of(running) is NodeState.DOWN and running.queued() == 1)
            assert len(node.received) == 5
            answer = await running.get("/ready")
            assert (answer.status, answer.error["code"]) == (503, "no_capacity")
            await running.probe()
            assert (await second).status == 502
            assert (len(node.received), state_of(running)) == (6, NodeState.DOWN)
            await running.probe()
            assert state_of(running) is NodeState.PROBATION
            assert running.gateway.pool.nodes[0].free() == [1, 1, 1]
            node.behaviour = Behaviour()
            assert (await running.chat()).status == 200
            assert state_of(running) is NodeState.UP

    run(scenario())


@pytest.mark.parametrize(
    "behaviour", [Behaviour(status=500), Behaviour(error_after=3)], ids=["500", "error-event"]
)
def test_one_request_that_a_node_fails_at_does_not_take_it_out(behaviour: Behaviour) -> None:
    """However often its owner sends it again. A node that is silent or gone proves more."""

    async def scenario() -> None:
        node = FakeNode(behaviour=behaviour)
        async with gateway_before(node) as running:
            for _ in range(2 * FAILURES_UNTIL_DOWN):
                await running.chat(stream=True, seed=1)
            assert state_of(running) is NodeState.UP
            node.behaviour = Behaviour(status=502)
            await running.chat(seed=1)
            assert state_of(running) is NodeState.DOWN

    run(scenario())


def test_a_node_killed_with_a_queue_loses_nothing() -> None:
    """A12 (d): whoever has not begun is served when the node is back."""

    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(gate=asyncio.Event()))
        async with gateway_before(node, max_inflight=2) as running:
            flood = [
                asyncio.create_task(running.chat(stream=index % 2 == 0)) for index in range(22)
            ]
            await eventually(lambda: running.queued() == 20 and len(node.received) == 2)
            await node.stop()
            await eventually(lambda: running.queued() == 22)
            assert state_of(running) is NodeState.DOWN
            answer = await running.chat()
            assert (answer.status, answer.error["code"]) == (503, "no_capacity")
            assert answer.headers["x-headway-drop-reason"] == "rejected-no-endpoints"
            assert 1 <= int(answer.headers["retry-after"]) <= 120
            node.behaviour = Behaviour()
            await node.start()
            await running.probe()
            answers = await asyncio.gather(*flood)
            assert {(one.status, one.text) for one in answers} == {(200, TEXT)}

    run(scenario())
