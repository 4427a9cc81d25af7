"""When a queued request leaves, and that every place comes back (trials A4, E3; G9)."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from headway.clock import ManualClock
from headway.core.backlog import QueuedRequest
from headway.core.outcome import Outcome
from headway.core.tier import DEFAULT_TIERS, Tiers
from headway.flowcontrol.controller import FlowController, Lease, ShedError
from headway.flowcontrol.nodes import Node, NodePool

TIERS = Tiers()
NAMES = ("critical", "normal", "bulk")


class Bench:
    """A controller on a manual clock, before nodes of a fixed size."""

    def __init__(self, *limits: int, tiers: Tiers = TIERS) -> None:
        self.clock = ManualClock(100.0)
        nodes = [Node(f"n{i}", f"http://n{i}", tiers, limit) for i, limit in enumerate(limits)]
        self.pool = NodePool(nodes, tiers)
        self.controller = FlowController(tiers, self.pool, self.clock)
        self.order: list[str] = []

    def request(self, id: str, rank: int = 1, tenant: str = "t") -> QueuedRequest:
        return QueuedRequest(
            request_id=id, rank=rank, tenant=tenant, cost=10.0, tokens=10, arrival=self.clock.now()
        )

    async def acquire(self, id: str, rank: int = 1, tenant: str = "t") -> Lease:
        lease = await self.controller.acquire(self.request(id, rank, tenant))
        self.order.append(id)
        return lease

    async def queue(self, id: str, rank: int = 1, tenant: str = "t") -> "asyncio.Task[Lease]":
        """Ask for a place in a task of its own; it waits, or has it, when this returns."""
        task = asyncio.create_task(self.acquire(id, rank, tenant))
        await asyncio.sleep(0)
        return task


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


def test_a_free_place_is_had_at_once() -> None:
    async def scenario() -> None:
        bench = Bench(2)
        lease = await bench.acquire("a")
        assert (lease.node.name, lease.queue_s) == ("n0", 0.0)
        assert bench.pool.nodes[0].inflight == [0, 1, 0]
        lease.release(12.0)
        bench.controller.check_idle()

    run(scenario())


def test_releasing_twice_frees_once() -> None:
    async def scenario() -> None:
        bench = Bench(2)
        first, second = await bench.acquire("a"), await bench.acquire("b")
        for _ in range(3):
            first.release(10.0)
        assert sum(bench.pool.nodes[0].inflight) == 1
        second.release(10.0)
        bench.controller.check_idle()

    run(scenario())


@pytest.mark.parametrize(
    ("cost", "order"),
    [(None, ["a1", "b1", "a2"]), (10.0, ["a1", "b1", "a2"]), (0.0, ["a1", "a2", "b1"])],
)
def test_g3_a_cost_that_nobody_knows_is_what_was_predicted(
    cost: float | None, order: list[str]
) -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("a1", tenant="a")
        waiting = [await bench.queue("a2", tenant="a"), await bench.queue("b1", tenant="b")]
        lease.release(cost)
        for ended in asyncio.as_completed(waiting):
            (await ended).release(10.0)
        assert bench.order == order
        bench.controller.check_idle()

    run(scenario())


def test_a_first_token_counts_once_and_only_while_there_is_a_place() -> None:
    async def scenario() -> None:
        bench = Bench(2)
        (node,) = bench.pool.nodes
        first, second = await bench.acquire("a"), await bench.acquire("b")
        for _ in range(2):
            first.started()
        assert sum(node.starting) == 1
        for lease in (first, second):
            lease.release(10.0)
            lease.started()
        assert sum(node.starting) == 0
        bench.controller.check_idle()

    run(scenario())


def test_the_most_urgent_leaves_first() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first", 2)
        waiting = [await bench.queue(name, rank) for rank, name in ((2, "b"), (1, "n"), (0, "c"))]
        bench.clock.advance(1.0)
        lease.release(10.0)
        for task in reversed(waiting):
            lease = await task
            assert lease.queue_s == 1.0
            lease.release(10.0)
        assert bench.order == ["first", "c", "n", "b"]
        bench.controller.check_idle()

    run(scenario())


def test_who_is_cancelled_in_the_queue_leaves_at_once() -> None:
    """A4."""

    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first")
        waiting = [await bench.queue(f"w{index}") for index in range(100)]
        for task in waiting:
            task.cancel()
        live = await bench.queue("live")
        await asyncio.gather(*waiting, return_exceptions=True)
        assert len(bench.controller.dispatcher) == 1
        lease.release(10.0)
        (await live).release(10.0)
        assert bench.order == ["first", "live"]
        bench.controller.check_idle()

    run(scenario())


def test_who_is_cancelled_just_when_dispatched_gives_the_place_back() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first")
        unlucky = await bench.queue("unlucky")
        lease.release(10.0)
        unlucky.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unlucky
        bench.controller.check_idle()

    run(scenario())


def test_a_time_limit_ends_the_wait_on_time() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first")
        critical, normal = await bench.queue("c", 0), await bench.queue("n", 1)
        bulk = await bench.queue("b", 2)
        bench.clock.advance(4.99)
        bench.controller.pump()
        await asyncio.sleep(0)
        assert not critical.done()
        bench.clock.advance(0.01)
        bench.controller.pump()
        with pytest.raises(ShedError) as caught:
            await critical
        assert caught.value.outcome is Outcome.EVICTED_TTL_EXPIRED
        assert 1 <= caught.value.retry_after_s <= 120
        assert not normal.done()
        bench.clock.advance(1e6)
        bench.controller.pump()
        with pytest.raises(ShedError):
            await normal
        # Bulk has no limit.
        lease.release(10.0)
        (await bulk).release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_the_timer_fires_by_itself() -> None:
    tiers = Tiers(tuple(replace(tier, queue_timeout_s=0.05) for tier in DEFAULT_TIERS))

    async def scenario() -> None:
        bench = Bench(1, tiers=tiers)
        lease = await bench.acquire("first")
        waiting = await bench.queue("w")
        # The clock is at the limit when the loop's timer fires; nobody pumps by hand.
        bench.clock.advance(0.05)
        with pytest.raises(ShedError):
            await waiting
        lease.release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_while_no_node_is_well_the_new_are_refused_and_the_old_wait() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        (node,) = bench.pool.nodes
        lease = await bench.acquire("first")
        waiting = await bench.queue("w")
        bench.pool.refused(node)
        lease.release(0.0)
        with pytest.raises(ShedError) as caught:
            await bench.acquire("new")
        assert caught.value.outcome is Outcome.REJECTED_NO_ENDPOINTS
        again = asyncio.create_task(bench.controller.acquire(bench.request("first"), again=True))
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.pool.probed(node, ())
        (await waiting).release(10.0)
        (await again).release(10.0)
        expired = Bench(1)
        lease = await expired.acquire("x", 0)
        last = await expired.queue("y", 0)
        expired.pool.refused(expired.pool.nodes[0])
        expired.clock.advance(6)
        expired.controller.pump()
        with pytest.raises(ShedError) as caught:
            await last
        assert caught.value.outcome is Outcome.EVICTED_NO_ENDPOINTS
        lease.release(0.0)
        expired.controller.check_idle()
        bench.controller.check_idle()

    run(scenario())


def test_who_lost_its_node_waits_though_the_queue_is_full() -> None:
    tiers = Tiers(tuple(replace(tier, max_queued=2) for tier in DEFAULT_TIERS))

    async def scenario() -> None:
        bench = Bench(1, 1, tiers=tiers)
        lost, kept = await bench.acquire("lost"), await bench.acquire("kept")
        waiting = [await bench.queue(name) for name in ("w0", "w1")]
        bench.pool.refused(lost.node)
        lost.release(0.0)
        with pytest.raises(ShedError):
            await bench.acquire("new")
        again = asyncio.create_task(bench.controller.acquire(bench.request("lost"), again=True))
        await asyncio.sleep(0)
        assert len(bench.controller.dispatcher) == 3
        kept.release(10.0)
        for task in (*waiting, again):
            (await task).release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_a_held_node_is_used_again_when_its_time_has_come() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        (node,) = bench.pool.nodes
        bench.pool.hold(node, 0.01, bench.clock.now())
        waiting = await bench.queue("w", 2)
        assert not waiting.done()
        bench.clock.advance(0.01)
        (await waiting).release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_closing_refuses_the_new_and_shedding_ends_the_rest() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first")
        waiting = [await bench.queue(f"w{index}", index % 3) for index in range(6)]
        bench.controller.close(30.0)
        with pytest.raises(ShedError) as caught:
            await bench.acquire("new")
        assert caught.value.outcome is Outcome.REJECTED_SHUTTING_DOWN
        bench.controller.shed_all()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(
            isinstance(end, ShedError) and end.outcome is Outcome.EVICTED_SHUTTING_DOWN
            for end in ends
        )
        lease.release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_closing_ends_all_at_once_when_the_last_node_goes() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        (node,) = bench.pool.nodes
        lease = await bench.acquire("first")
        waiting = await bench.queue("w", 2)
        bench.controller.close(30.0)
        bench.pool.refused(node)
        with pytest.raises(ShedError) as caught:
            await waiting
        assert caught.value.outcome is Outcome.EVICTED_SHUTTING_DOWN
        lease.release(0.0)
        bench.controller.check_idle()

    run(scenario())


async def shake(bench: Bench, tasks: "list[asyncio.Task[str]]", random: Random) -> None:
    """Let one thing happen."""
    match random.randrange(6):
        case 0:
            random.choice(tasks).cancel()
        case 1:
            bench.pool.refused(random.choice(bench.pool.nodes))
        case 2:
            bench.pool.probed(random.choice(bench.pool.nodes), ())
        case 3:
            bench.clock.advance(random.random())
            bench.controller.pump()
        case _:
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_place_comes_back(seed: int) -> None:
    """E3 and G9: random ends of random requests, nodes that come and go."""
    random = Random(seed)

    async def caller(bench: Bench, index: int) -> str:
        try:
            lease = await bench.acquire(f"r{index}", index % 3, f"t{index % 5}")
        except ShedError as error:
            return error.outcome
        try:
            for _ in range(index % 4):
                await asyncio.sleep(0)
        finally:
            lease.release(float(index % 7))
        return "served"

    async def scenario() -> None:
        bench = Bench(2, 3)
        tasks: list[asyncio.Task[str]] = []
        for index in range(200):
            tasks.append(asyncio.create_task(caller(bench, index)))
            await shake(bench, tasks, random)
            bench.controller.dispatcher.check_integrity()
        for node in bench.pool.nodes:
            bench.pool.probed(node, ())
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, str | asyncio.CancelledError) for end in ends), ends
        assert "served" in ends
        bench.controller.check_idle()

    run(scenario())
