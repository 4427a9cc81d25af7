"""Do coroutines and the engine's thread part cleanly, whoever leaves first?"""

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Condition
from typing import Any

import pytest

from headway.engine.async_engine import AsyncEngine, Event
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.merge import merge_outputs
from headway.engine.options import EngineOptions
from headway.engine.output_stream import MERGE_AT, OutputStream
from headway.engine.request import Choice, EngineRequest, RequestOutput
from headway.engine.runner import SequenceSlice, StepResult
from headway.errors import EngineDeadError, InvalidRequestError
from tests.engine.tiny import BULK, CRITICAL, alone, request


class GatedRunner(FakeRunner):
    """A runner whose steps wait for permission, so that a test decides what happens between."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = Condition()
        self._allowed = 0
        self._reached = 0

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """See `ModelRunner`."""
        with self._changed:
            self._reached += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._allowed >= self._reached)
        return super().execute(slices, copies)

    def open(self) -> None:
        """Allow all steps."""
        with self._changed:
            self._allowed = 2**31
            self._changed.notify_all()

    async def at_gate(self) -> None:
        """Return when a step waits for permission; those before it are done and published."""
        await asyncio.to_thread(self._wait_for_gate)

    def _wait_for_gate(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._reached > self._allowed)

    async def advance(self) -> None:
        """Allow one step and wait for the next."""
        await self.at_gate()
        with self._changed:
            self._allowed += 1
            self._changed.notify_all()
        await self.at_gate()


class Started:
    """An engine that runs within `async with`, and is idle and whole at the end (I0)."""

    def __init__(self, runner: FakeRunner | None = None, **settings: Any) -> None:
        options = {"max_num_seqs": 2, "max_num_batched_tokens": 16, "calibrate": False} | settings
        self.runner = FakeRunner() if runner is None else runner
        engine = LLMEngine.from_parts(self.runner, ByteTokenizer(), EngineOptions(**options))
        self.engine = AsyncEngine(engine)

    async def __aenter__(self) -> AsyncEngine:
        """Start."""
        self.engine.start()
        return self.engine

    async def __aexit__(self, *error: object) -> None:
        """Stop and check."""
        await self.engine.stop()
        stats = self.engine.stats()
        assert sum(stats.num_running) == sum(stats.num_waiting) == stats.num_held_blocks == 0
        self.engine.engine.check_integrity()


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine with a limit on its time."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(limited())


async def read(engine: AsyncEngine, wanted: EngineRequest) -> RequestOutput:
    """Return the whole answer."""
    return merge_outputs([output async for output in engine.generate(wanted)])


def test_many_requests_at_once_get_their_own_answers() -> None:
    """Each as if alone, under the id that its caller chose."""

    async def test() -> None:
        all_wanted = [request(f"r{i % 7}", 10 + i, 12, i % 3, prompt_seed=i) for i in range(30)]
        async with Started(max_num_seqs=6) as engine:
            answers = await asyncio.gather(*(read(engine, wanted) for wanted in all_wanted))
        for wanted, answer in zip(all_wanted, answers, strict=True):
            assert answer.request_id == wanted.request_id
            assert answer.finished
            assert answer.choices[0].token_ids == alone(wanted)

    run(test())


@pytest.mark.parametrize("phase", ["queued", "prefill", "first token", "middle", "after the end"])
@pytest.mark.parametrize("how", ["aclose", "cancel"])
def test_c1_leaving_at_any_moment_frees_all(phase: str, how: str) -> None:
    """C1: slots and blocks are back before the other request ends, which is not touched."""
    stays = request("stays", 20, 90, CRITICAL, prompt_seed=4)
    leaves = request("leaves", 60, 3 if phase == "after the end" else 80, BULK, n=2)
    num_tokens = {"first token": 1, "middle": 7, "after the end": 6}.get(phase, 0)

    async def test() -> None:
        runner = GatedRunner()
        async with Started(runner, max_num_seqs=3) as engine:
            staying = asyncio.ensure_future(read(engine, stays))
            await runner.at_gate()
            stream = engine.generate(leaves)
            gained = 0
            if phase == "prefill":
                while engine.stats().num_running[BULK] == 0:
                    await runner.advance()
            while gained < num_tokens:
                reading = asyncio.ensure_future(anext(stream))
                await asyncio.sleep(0)
                while not reading.done():
                    await runner.advance()
                gained = reading.result().num_output_tokens
            if how == "aclose":
                await stream.aclose()
                await stream.aclose()
            else:
                await cancel_reader(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            await runner.advance()
            await runner.advance()
            assert engine.stats().num_running == (1, 0, 0)
            assert engine.stats().num_waiting == (0, 0, 0)
            runner.open()
            assert (await staying).choices[0].token_ids == alone(stays)
            aborted = engine.stats().num_finished.get("abort", 0)
            assert aborted == (0 if phase == "after the end" else 2)

    run(test())


async def cancel_reader(stream: OutputStream) -> None:
    """Cancel a task that waits for the next output, or has nothing to wait for."""
    task = asyncio.ensure_future(drain(stream))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def drain(stream: OutputStream) -> None:
    """Read to the end."""
    async for _ in stream:
        pass


def test_a_refusal_comes_at_once() -> None:
    """Before anything is awaited, and nothing is left of it."""

    async def test() -> None:
        async with Started() as engine:
            with pytest.raises(InvalidRequestError) as refused:
                engine.generate(request("r", 250, 1))
            assert refused.value.param == "prompt"
            await read(engine, request("r", 20, 2))

    run(test())


def test_a_slow_reader_gets_everything_in_one_piece() -> None:
    """What waits for a reader is merged; nothing of it is lost, and it is bounded."""

    async def test() -> None:
        wanted = request("slow", 10, 170, logprobs=1)
        async with Started() as engine:
            stream = engine.generate(wanted)
            await engine.stop(drain_s=20.0)
            outputs = [output async for output in stream]
        assert len(outputs) == 1
        assert outputs[0].choices[0].token_ids == alone(wanted)
        logprobs = outputs[0].choices[0].logprobs
        assert logprobs is not None
        assert len(logprobs) == 170

    run(test())


def test_unread_outputs_are_bounded() -> None:
    """Whatever the number of steps."""
    stream = OutputStream("r", lambda: None)
    for number in range(10 * MERGE_AT):
        stream.put(RequestOutput("r", (Choice(0, "x", (number,)),), False, 1, 0, number + 1))
        assert stream.num_unread < MERGE_AT

    async def test() -> None:
        output = await anext(stream)
        assert output.choices[0].text == "x" * (10 * MERGE_AT)
        assert output.num_output_tokens == 10 * MERGE_AT

    run(test())


def test_a_late_output_does_not_reach_a_later_request_of_the_same_id() -> None:
    """C1: the first leaves while a step is under way, the second has its id."""

    async def test() -> None:
        runner = GatedRunner()
        wanted = request("same", 12, 20, prompt_seed=6)
        async with Started(runner) as engine:
            stream = engine.generate(request("same", 10, 50))
            await runner.advance()
            await runner.advance()
            await stream.aclose()
            second = asyncio.ensure_future(read(engine, wanted))
            await asyncio.sleep(0)
            runner.open()
            assert (await second).choices[0].token_ids == alone(wanted)

    run(test())


def test_a_crash_is_told_to_every_open_request(caplog: pytest.LogCaptureFixture) -> None:
    """K11: no reader waits for ever, and later requests are refused at once."""

    async def test() -> None:
        engine = Started(FakeRunner(dies_at_step=4)).engine
        engine.start()
        was_alive = engine.alive
        assert was_alive
        readers = [
            asyncio.ensure_future(read(engine, request(f"r{i}", 10, 30, prompt_seed=i)))
            for i in range(3)
        ]
        errors = await asyncio.gather(*readers, return_exceptions=True)
        assert [type(error) for error in errors] == [EngineDeadError] * 3
        assert not engine.alive
        with pytest.raises(EngineDeadError):
            engine.generate(request("later", 10, 5))
        await engine.stop(drain_s=5.0)

    run(test())
    assert "told to die" in caplog.text


def test_stop_lets_requests_finish_while_there_is_time() -> None:
    """With time, all finish; new ones are refused meanwhile."""

    async def test() -> None:
        runner = GatedRunner()
        async with Started(runner) as engine:
            wanted = request("r", 10, 30)
            reader = asyncio.ensure_future(read(engine, wanted))
            await runner.at_gate()
            stopping = asyncio.ensure_future(engine.stop(drain_s=20.0))
            await asyncio.sleep(0)
            assert not engine.alive
            with pytest.raises(EngineDeadError):
                engine.generate(request("late", 10, 5))
            runner.open()
            await stopping
            assert (await reader).choices[0].token_ids == alone(wanted)

    run(test())


def test_stop_without_time_ends_what_is_open() -> None:
    """Readers learn it as an error; slots and blocks are back (checked by `Started`)."""

    async def test() -> None:
        runner = GatedRunner()
        async with Started(runner) as engine:
            streams = [engine.generate(request(f"r{i}", 10, 150, i)) for i in range(3)]
            await runner.advance()
            stopping = asyncio.ensure_future(engine.stop())
            await asyncio.sleep(0)
            runner.open()
            await stopping
            for stream in streams:
                with pytest.raises(EngineDeadError):
                    await drain(stream)

    run(test())


class CountingEngine(AsyncEngine):
    """Counts what arrives on the event loop."""

    num_crossings = 0
    num_outputs = 0

    def _receive(self, events: list[Event]) -> None:
        self.num_crossings += 1
        self.num_outputs += len(events)
        super()._receive(events)


def test_one_crossing_for_each_step() -> None:
    """Eight streams, but the loop is called once for a step."""

    async def test() -> None:
        started = Started(max_num_seqs=8, max_num_batched_tokens=64)
        engine = CountingEngine(started.engine.engine)
        engine.start()
        all_wanted = [request(f"r{i}", 4, 12, CRITICAL, prompt_seed=i) for i in range(8)]
        await asyncio.gather(*(read(engine, wanted) for wanted in all_wanted))
        await engine.stop()
        assert engine.num_outputs == 96
        assert engine.num_crossings <= engine.stats().num_steps

    run(test())


def test_it_starts_once() -> None:
    """A second start is a mistake, said so."""

    async def test() -> None:
        async with Started() as engine:
            with pytest.raises(RuntimeError):
                engine.start()

    run(test())
