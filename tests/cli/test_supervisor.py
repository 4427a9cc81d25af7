"""Are children restarted, stopped in order, and never left behind? With real processes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

import pytest

from headway.cli.supervisor import Backoff
from tests.cli.stage import PATIENCE_S, Event, Supervised, supervised

ORDERLY = {"engine": "orderly", "gateway": "orderly"}


def test_children_start_in_order_and_are_announced_when_all_are_ready() -> None:
    async def scenario() -> None:
        async with supervised(ORDERLY) as it:
            await it.stage.expect("gateway", "started")
            assert [event.name for event in it.stage.seen] == ["engine", "gateway"]
            assert await it.line("READY")

    asyncio.run(scenario())


def test_the_second_child_waits_until_the_first_is_well() -> None:
    async def scenario() -> None:
        async with supervised(ORDERLY, well=False) as it:
            await it.stage.expect("engine", "started")
            for _ in range(3):
                await asyncio.wait_for(it.stage.asked.get(), PATIENCE_S)
            it.signal(signal.SIGTERM)
            assert await it.code() == 0
            await it.stage.expect("engine", "gone")
            assert {event.name for event in it.stage.seen} == {"engine"}

    asyncio.run(scenario())


@pytest.mark.parametrize("victim", ["engine", "gateway"])
def test_a_killed_child_is_started_again_and_the_other_goes_on(victim: str) -> None:
    async def scenario() -> None:
        async with supervised(ORDERLY) as it:
            await it.line("READY")
            started = {}
            for name in ORDERLY:
                started[name] = await it.stage.expect(name, "started")
            os.kill(started[victim], signal.SIGKILL)
            assert "was ended by SIGKILL" in await it.line(victim)
            assert await it.stage.expect(victim, "started") != started[victim]
            assert await it.line(f"{victim} is ready again")
            gone = [event for event in it.stage.seen if event.what == "gone"]
            assert gone == [Event(victim, "gone", started[victim])]

    asyncio.run(scenario())


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_gateway_drains_before_the_engine_is_told(signum: int) -> None:
    async def scenario() -> None:
        async with supervised({"engine": "orderly", "gateway": "hold"}) as it:
            await it.line("READY")
            it.signal(signum)
            await it.stage.expect("gateway", "term")
            it.stage.release("gateway")
            await it.stage.expect("engine", "gone")
            order = [(event.name, event.what) for event in it.stage.seen]
            assert order.index(("gateway", "bye")) < order.index(("engine", "term"))
            assert await it.code() == 0

    asyncio.run(scenario())


def test_no_child_outlives_a_killed_supervisor() -> None:
    async def scenario() -> None:
        async with supervised({"engine": "stubborn", "gateway": "stubborn"}) as it:
            await it.line("READY")
            it.signal(signal.SIGKILL)
            await it.stage.expect_all(ORDERLY, "gone")

    asyncio.run(scenario())


def test_a_refused_child_ends_everything_with_its_code() -> None:
    async def scenario() -> None:
        async with supervised({"engine": "orderly", "gateway": "exit:2"}) as it:
            assert await it.code() == 2
            await it.stage.expect("engine", "gone")
            started = [event.name for event in it.stage.seen if event.what == "started"]
            assert started == ["engine", "gateway"]

    asyncio.run(scenario())


def test_a_child_that_never_starts_is_given_up() -> None:
    async def scenario() -> None:
        backoff = {"first_s": 0.01, "max_first_starts": 3}
        async with supervised({"engine": "exit:1"}, backoff=backoff, well=False) as it:
            assert "never became ready in 3 starts" in await it.line("giving up")
            assert await it.code() == 1

    asyncio.run(scenario())


def test_a_child_that_does_not_stop_is_killed_and_the_code_says_so() -> None:
    async def scenario() -> None:
        async with supervised({"engine": "stubborn"}, stop_timeout_s=0.2) as it:
            await it.line("READY")
            it.signal(signal.SIGTERM)
            assert await it.line("engine did not stop in 0.2 s: killed")
            assert await it.code() == 1
            await it.stage.expect("engine", "gone")

    asyncio.run(scenario())


def _stop_twice(same_signal_s: float, after: Callable[[Supervised], Awaitable[None]]) -> int:
    """Send SIGTERM twice while the gateway drains; return the exit code."""

    async def scenario() -> int:
        children = {"engine": "orderly", "gateway": "hold"}
        async with supervised(children, same_signal_s=same_signal_s) as it:
            await it.line("READY")
            it.signal(signal.SIGTERM)
            await it.stage.expect("gateway", "term")
            it.signal(signal.SIGTERM)
            await after(it)
            return await it.code()

    return asyncio.run(scenario())


def test_a_second_signal_ends_everything_at_once() -> None:
    async def after(it: Supervised) -> None:
        await it.line("second signal")
        await it.stage.expect("gateway", "gone")
        assert ("gateway", "bye") not in [event[:2] for event in it.stage.seen]

    assert _stop_twice(0.0, after) == 1


def test_a_signal_that_comes_twice_at_once_is_one() -> None:
    async def after(it: Supervised) -> None:
        it.stage.release("gateway")
        await it.stage.expect("gateway", "bye")

    assert _stop_twice(60.0, after) == 0


def test_a_stop_does_not_wait_for_the_pause_before_a_restart() -> None:
    async def scenario() -> None:
        backoff = {"first_s": 1000.0, "longest_s": 1000.0}
        async with supervised({"engine": "exit:1"}, backoff=backoff) as it:
            assert "starting it again in 1000 s" in await it.line("engine")
            it.signal(signal.SIGTERM)
            assert await it.code() == 0

    asyncio.run(scenario())


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.5, longest_s=30.0)
    assert [backoff.pause_s(failures) for failures in (1, 2, 3, 6, 7, 8, 10_000)] == [
        *(0.5, 1.0, 2.0, 16.0, 30.0, 30.0, 30.0)
    ]
