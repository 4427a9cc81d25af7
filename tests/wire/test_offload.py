"""Does large work leave the event loop free, one piece at a time? (D4, K15)"""

import asyncio
from functools import partial
from threading import Event, current_thread, main_thread

import pytest

from headway.wire.offload import Offload


def test_small_work_runs_on_the_loop_and_large_work_does_not() -> None:
    async def scenario() -> None:
        offload = Offload("large", inline_up_to=10)
        assert await offload.run(10, current_thread) is main_thread()
        assert (await offload.run(11, current_thread)).name.startswith("large")
        offload.close()

    asyncio.run(scenario())


def test_the_loop_goes_on_while_large_work_runs() -> None:
    async def scenario() -> None:
        offload, gate = Offload("large", inline_up_to=0), Event()
        working = asyncio.create_task(offload.run(1, gate.wait))
        await asyncio.sleep(0)
        # Only a loop that goes on can open the gate.
        gate.set()
        assert await working is True
        offload.close()

    asyncio.run(scenario())


def test_there_are_never_more_at_work_than_threads_and_the_line_is_in_order() -> None:
    async def scenario() -> None:
        offload = Offload("large", inline_up_to=0)
        busy: list[int] = []
        seen: list[tuple[int, int]] = []

        def work(number: int) -> None:
            busy.append(number)
            seen.append((number, len(busy)))
            busy.remove(number)

        await asyncio.gather(*(offload.run(1, partial(work, number)) for number in range(20)))
        assert seen == [(number, 1) for number in range(20)]
        offload.close()

    asyncio.run(scenario())


def test_what_is_cancelled_in_line_never_runs() -> None:
    async def scenario() -> None:
        offload, gate = Offload("large", inline_up_to=0), Event()
        ran: list[str] = []
        first = asyncio.create_task(offload.run(1, gate.wait))
        second = asyncio.create_task(offload.run(1, lambda: ran.append("second")))
        third = asyncio.create_task(offload.run(1, lambda: ran.append("third")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        gate.set()
        await asyncio.gather(first, third)
        assert ran == ["third"]
        offload.close()

    asyncio.run(scenario())


def test_what_the_work_raises_is_raised() -> None:
    async def scenario() -> None:
        offload = Offload("large", inline_up_to=0)
        with pytest.raises(ZeroDivisionError):
            await offload.run(1, lambda: 1 // 0)
        offload.close()

    asyncio.run(scenario())
