"""Which nodes may be sent to, and which of them gets the request."""

import pytest

from headway.core.tier import Tiers
from headway.flowcontrol.nodes import (
    FAILURES_UNTIL_DOWN,
    MAX_HOLD_S,
    MOST_STARTING,
    SLOTS_PER_STREAM,
    Node,
    NodePool,
    NodeState,
)

TIERS = Tiers()


def pool(*limits: int | None) -> NodePool:
    nodes = [Node(f"n{i}", f"http://n{i}/", TIERS, limit) for i, limit in enumerate(limits)]
    return NodePool(nodes, TIERS)


def fill(one: NodePool, node: Node, rank: int, count: int) -> None:
    for _ in range(count):
        one.take(node, rank)
        one.started(node, rank)


def state_of(node: Node) -> NodeState:
    return node.state


def test_an_unknown_node_is_neither_full_nor_free() -> None:
    one = pool(None)
    (node,) = one.nodes
    assert state_of(node) is NodeState.UNKNOWN
    assert one.free(0.0) == [8, 7, 7]
    assert one.any_usable()
    assert not one.any_healthy()


def test_critical_goes_to_the_least_loaded_and_others_to_the_fullest_that_fits() -> None:
    one = pool(10, 10, 10)
    for node, count in zip(one.nodes, (4, 7, 9), strict=True):
        fill(one, node, 2, count)
    assert [one.place(rank, 0.0) for rank in (0, 1, 2)] == [
        *(one.nodes[0], one.nodes[1], one.nodes[1])
    ]


def test_where_steps_are_planned_by_tier_critical_minds_only_its_own() -> None:
    """Bulk gives way there, so how much of it a node has says nothing about critical's wait."""
    one = pool(None, None, None)
    for node in one.nodes:
        one.reported(node, 40)
    for node, critical, bulk in zip(one.nodes, (2, 1, 1), (0, 20, 10), strict=True):
        fill(one, node, 0, critical)
        fill(one, node, 2, bulk)
    assert one.place(0, 0.0) is one.nodes[2]
    fill(one, one.nodes[2], 0, 1)
    assert one.place(0, 0.0) is one.nodes[1]


def test_critical_leaves_a_node_that_does_not_begin_what_it_gets() -> None:
    """A node that has become slow has as many streams as others, and prompts that wait."""
    one = pool(None, None)
    for node in one.nodes:
        one.reported(node, 256)
    slow, quick = one.nodes
    fill(one, slow, 0, 10)
    one.take(slow, 0)
    for _ in range(10 + 256 // SLOTS_PER_STREAM):
        assert one.place(0, 0.0) is quick
        fill(one, quick, 0, 1)
    one.started(slow, 0)
    assert one.place(0, 0.0) is slow, "it has begun"
    one.check_integrity()


def test_a_node_gets_no_more_than_it_begins_while_another_keeps_up() -> None:
    one = pool(30, 30)
    for node, count in zip(one.nodes, (5, 10), strict=True):
        fill(one, node, 2, count)
    for _ in range(2):
        chosen: list[Node] = []
        while (best := one.place(1, 0.0)) is not None and len(chosen) < 2 * MOST_STARTING:
            one.take(best, 1)
            chosen.append(best)
        assert chosen == [one.nodes[1]] * MOST_STARTING + [one.nodes[0]] * MOST_STARTING
        assert one.place(1, 0.0) is one.nodes[0], "both are behind"
        for node in chosen:
            one.started(node, 1)
    for node in one.nodes:
        one.give_back(node, 1, started=True)
        one.take(node, 1)
        one.give_back(node, 1)
    one.check_integrity()
    assert not any(node.behind for node in one.nodes)


def test_avoided_nodes_are_the_last_resort() -> None:
    one = pool(1, 1)
    assert one.place(0, 0.0, {"n0"}) is one.nodes[1]
    one.take(one.nodes[1], 0)
    assert one.place(0, 0.0, {"n0"}) is one.nodes[0]
    one.take(one.nodes[0], 0)
    assert one.place(0, 0.0) is None


def test_several_failures_in_a_row_take_a_node_out_and_one_does_not() -> None:
    one = pool(8)
    (node,) = one.nodes
    one.probed(node, ("m",))
    for _ in range(10):
        one.failed(node)
        one.failed(node)
        one.succeeded(node)
    assert state_of(node) is NodeState.UP
    for _ in range(FAILURES_UNTIL_DOWN):
        one.failed(node)
    assert state_of(node) is NodeState.DOWN
    assert one.free(0.0) == [0, 0, 0]
    assert one.place(0, 0.0) is None


def test_a_request_that_may_be_the_cause_counts_once() -> None:
    one = pool(8)
    (node,) = one.nodes
    one.probed(node, ("m",))
    for _ in range(10):
        one.failed(node, cause=1)
        one.failed(node, cause=2)
    assert state_of(node) is NodeState.UP
    one.succeeded(node)
    for cause in range(FAILURES_UNTIL_DOWN):
        assert state_of(node) is NodeState.UP
        one.failed(node, cause=cause)
    assert state_of(node) is NodeState.DOWN
    one.probed(node, ("m",))
    one.failed(node, cause=0)
    assert state_of(node) is NodeState.DOWN


def test_after_failed_requests_a_node_serves_one_before_more() -> None:
    one = pool(8)
    (node,) = one.nodes
    for _ in range(FAILURES_UNTIL_DOWN):
        one.failed(node)
    one.probed(node, ())
    assert state_of(node) is NodeState.PROBATION
    assert one.free(0.0) == [1, 1, 1]
    one.take(node, 2)
    assert one.free(0.0) == [0, 0, 0]
    one.probed(node, ())
    assert state_of(node) is NodeState.PROBATION
    one.failed(node)
    assert state_of(node) is NodeState.DOWN
    one.probed(node, ())
    one.succeeded(node)
    assert state_of(node) is NodeState.UP


def test_a_refused_connection_is_proof_and_a_probe_brings_the_node_back() -> None:
    one = pool(8)
    (node,) = one.nodes
    one.refused(node)
    assert state_of(node) is NodeState.DOWN
    one.probed(node, ("m",))
    assert state_of(node) is NodeState.UP
    assert one.models == {"m"}
    one.probed(node, ())
    assert one.models == {"m"}


def test_an_answer_begun_before_takes_up_no_node_that_is_gone() -> None:
    one = pool(8)
    (node,) = one.nodes
    one.refused(node)
    one.succeeded(node)
    assert state_of(node) is NodeState.DOWN
    for _ in range(FAILURES_UNTIL_DOWN):
        one.failed(node)
    one.succeeded(node)
    assert state_of(node) is NodeState.DOWN, "what was under way there failed, too"
    one.probed(node, ())
    one.succeeded(node)
    assert state_of(node) is NodeState.UP
    for _ in range(FAILURES_UNTIL_DOWN):
        one.missed(node)
    one.succeeded(node)
    assert state_of(node) is NodeState.DOWN
    one.probed(node, ())
    for _ in range(FAILURES_UNTIL_DOWN):
        one.failed(node)
    one.succeeded(node)
    assert state_of(node) is NodeState.UP, "only its requests had failed"
    one.check_integrity()


def test_the_last_node_that_goes_is_a_change() -> None:
    one = pool(8, 8)
    asked: list[int] = []
    one.on_change = lambda: asked.append(1)
    one.refused(one.nodes[0])
    assert not asked
    one.refused(one.nodes[1])
    assert len(asked) == 1


def test_a_missed_probe_proves_nothing_while_requests_are_answered() -> None:
    one = pool(8)
    (node,) = one.nodes
    for _ in range(10):
        one.missed(node)
        one.missed(node)
        one.succeeded(node)
    assert state_of(node) is NodeState.UP
    for _ in range(3):
        one.missed(node)
    assert state_of(node) is NodeState.DOWN


@pytest.mark.parametrize(("asked", "held"), [(2.0, 2.0), (9999.0, MAX_HOLD_S)])
def test_a_full_node_is_held_for_as_long_as_it_says_within_reason(
    asked: float, held: float
) -> None:
    one = pool(8)
    (node,) = one.nodes
    one.hold(node, asked, 100.0)
    assert one.free(100.0) == [0, 0, 0]
    assert one.next_release(100.0) == 100.0 + held
    assert one.free(100.0 + held)[0] == 8
    assert one.next_release(100.0 + held) is None


def test_the_reported_limit_may_be_overcommitted_and_a_configured_one_not() -> None:
    one = pool(None, 20)
    asked: list[int] = []
    one.on_change = lambda: asked.append(1)
    for node in one.nodes:
        one.reported(node, 40)
    assert len(asked) == 2
    assert [node.limit for node in one.nodes] == [40, 20]
    fill(one, one.nodes[0], 2, 34)
    fill(one, one.nodes[1], 2, 17)
    assert one.nodes[0].free()[0] == 44 - 34
    assert one.nodes[1].free()[0] == 20 - 17
