"""What a controller does with predicted waits: at its end, and for work with a deadline."""

import asyncio
from dataclasses import replace

import pytest

from headway.core.outcome import Outcome
from headway.flowcontrol.controller import NO_NODE_RETRY_AFTER_S, Lease, ShedError
from tests.flowcontrol.test_controller import Bench, run


async def serve_one_each_second(bench: Bench, count: int) -> "list[asyncio.Task[Lease]]":
    """Queue so many, serve ten of them one a second, and return the others in order."""
    waiting = [await bench.queue(f"w{index}") for index in range(count)]
    for _ in range(10):
        lease = await waiting.pop(0)
        bench.clock.advance(1.0)
        lease.release(10.0)
    return waiting


def test_closing_ends_at_once_what_would_not_leave_in_time_and_lets_the_rest_leave() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        waiting = await serve_one_each_second(bench, 31)
        assert bench.controller.dispatcher.drain_rate == pytest.approx(10.0, rel=0.01)
        bench.controller.close(5.5)
        await asyncio.sleep(0)
        refused = [task for task in waiting if task.done() and task.exception() is not None]
        assert refused == waiting[6:], "one is being served, five more are within reach"
        for task in refused:
            error = task.exception()
            assert isinstance(error, ShedError)
            assert error.outcome is Outcome.EVICTED_SHUTTING_DOWN
        for task in waiting[:6]:
            (await task).release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_while_closing_nobody_waits_for_a_node_that_is_gone() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first")
        waiting = await bench.queue("w")
        bench.controller.close(30.0)
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.pool.refused(bench.pool.nodes[0])
        lease.release(0.0)
        with pytest.raises(ShedError) as caught:
            await waiting
        assert caught.value.outcome is Outcome.EVICTED_SHUTTING_DOWN
        bench.controller.check_idle()

    run(scenario())


def test_without_a_node_the_hint_is_how_soon_one_is_found_again() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        bench.pool.refused(bench.pool.nodes[0])
        with pytest.raises(ShedError) as caught:
            await bench.acquire("new")
        assert caught.value.outcome is Outcome.REJECTED_NO_ENDPOINTS
        assert caught.value.retry_after_s == NO_NODE_RETRY_AFTER_S < 1.0

    run(scenario())


def test_promoted_work_takes_and_gives_back_the_upper_tiers_place() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        lease = await bench.acquire("first")
        dated = replace(bench.request("dated", 2), deadline=bench.clock.now() + 100.0)
        waiting = asyncio.create_task(bench.controller.acquire(dated))
        await asyncio.sleep(0)
        bench.clock.advance(90.0)
        bench.controller.pump()
        lease.release(10.0)
        promoted = await waiting
        assert promoted.rank == 1
        assert bench.pool.nodes[0].inflight == [0, 1, 0]
        promoted.release(10.0)
        bench.controller.check_idle()

    run(scenario())


def test_a_lease_says_what_wait_was_predicted() -> None:
    async def scenario() -> None:
        bench = Bench(1)
        at_once = await bench.acquire("at once")
        assert at_once.wait is not None
        assert at_once.wait.p90_s == 0.0
        at_once.release(10.0)
        waiting = await serve_one_each_second(bench, 20)
        last = await bench.queue("last")
        for task in waiting:
            (await task).release(10.0)
        lease = await last
        assert lease.wait is not None
        assert 5.0 < lease.wait.p50_s < lease.wait.p90_s < 60.0
        lease.release(10.0)
        counts = bench.controller.dispatcher.wait_counts
        assert counts.judged[1] > 0
        bench.controller.check_idle()

    run(scenario())
