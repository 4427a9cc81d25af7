"""How do coroutines share one engine?

One thread owns the `LLMEngine`: only it adds, aborts and steps. Coroutines hand it commands through
a queue and wake it; without work it sleeps on a condition. What a step yields crosses back in one
call of the event loop, whatever the number of requests. Nothing polls.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Condition, Thread
from typing import Any

from headway.engine.engine import LLMEngine
from headway.engine.output_stream import OutputStream
from headway.engine.request import EngineRequest, RequestOutput
from headway.engine.stats import EngineStats
from headway.errors import ClientError, EngineDeadError

logger = logging.getLogger(__name__)

Event = RequestOutput | tuple[str, Exception]
"""An output, or the id of a request and why it was refused."""


class AsyncEngine:
    """An `LLMEngine` for one event loop.

    Requests are renamed inside, so that a late output never reaches a later request of the same
    id, and two callers who choose the same id do not meet.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.engine = engine
        self._streams: dict[str, OutputStream] = {}
        self._serial = count()
        self._commands: deque[Callable[[], list[Event]]] = deque()
        self._wake = Condition()
        self._stopping = False
        self._accepting = False
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._idle: asyncio.Event | None = None
        self._stats = engine.stats()

    # -- on the event loop ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Call it once, on the running event loop."""
        if self._thread is not None:
            raise RuntimeError("the engine was started before")
        self._loop = asyncio.get_running_loop()
        self._ended, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._accepting = True
        # A daemon, so that a program that forgets to stop it still ends.
        self._thread = Thread(target=self._main, name="headway-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are taken."""
        return self._accepting

    def stats(self) -> EngineStats:
        """Return the numbers after the latest step or command."""
        return self._stats

    def generate(self, request: EngineRequest) -> OutputStream:
        """Submit a request at once and return its outputs as they come.

        A reader that is slow gets several steps' gains in one output. `aclose()`, or cancelling
        whoever waits for the next output, aborts the request. Raises InvalidRequestError if it
        never fits and EngineDeadError if the engine does not run; iterating raises EngineDeadError
        when the engine ends before the request does.
        """
        if not self._accepting or self._idle is None:
            raise EngineDeadError("the engine does not take requests")
        self.engine.fit.check(request)
        internal = replace(request, request_id=f"{next(self._serial)}:{request.request_id}")
        stream = OutputStream(request.request_id, lambda: self._abort(internal.request_id))
        self._streams[internal.request_id] = stream
        self._idle.clear()
        self._command(lambda: self._add(internal))
        return stream

    async def stop(self, drain_s: float = 0.0) -> None:
        """Take no more requests, give those in progress `drain_s` seconds, end the thread.

        Requests that are left then raise EngineDeadError at their readers.
        """
        self._accepting = False
        if self._thread is None or self._idle is None or self._ended is None:
            return
        if drain_s > 0:
            await self._wait_idle(self._idle, drain_s)
        with self._wake:
            self._stopping = True
            self._wake.notify()
        await self._ended.wait()
        self._thread.join()

    async def _wait_idle(self, idle: asyncio.Event, drain_s: float) -> None:
        try:
            async with asyncio.timeout(drain_s):
                await idle.wait()
        except TimeoutError:
            logger.warning("%d requests did not end within %g s", len(self._streams), drain_s)

    def _abort(self, request_id: str) -> None:
        """Forget a stream whose reader left, and tell the engine."""
        if self._streams.pop(request_id, None) is None:
            return
        self._note_idle()
        self._command(lambda: self._abort_in_engine(request_id))

    def _command(self, command: Callable[[], list[Event]]) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _receive(self, events: list[Event]) -> None:
        """Hand outputs to their readers; one that has left is not missed."""
        for event in events:
            if isinstance(event, RequestOutput):
                stream = self._streams.get(event.request_id)
                if stream is not None:
                    stream.put(event)
                if event.finished:
                    self._streams.pop(event.request_id, None)
            else:
                stream = self._streams.pop(event[0], None)
                if stream is not None:
                    stream.fail(event[1])
        self._note_idle()

    def _end(self, reason: str) -> None:
        """The thread has ended: nobody will get another output."""
        self._accepting = False
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(EngineDeadError(reason))
        self._note_idle()
        if self._ended is not None:
            self._ended.set()

    def _note_idle(self) -> None:
        if not self._streams and self._idle is not None:
            self._idle.set()

    # -- on the engine's thread -----------------------------------------------------------------

    def _main(self) -> None:
        reason = "the engine died"
        try:
            while self._wait_for_work():
                if self._commands:
                    self._publish(self._carry_out_commands())
                if self.engine.has_unfinished():
                    self._publish(self.engine.step())
            reason = "the engine was stopped"
            self.engine.abort_all()
            self._publish([])
        except Exception:
            logger.exception("the engine died; its open requests fail")
        self._accepting = False
        self._call_loop(self._end, reason)

    def _wait_for_work(self) -> bool:
        """Return True when there is a command or a step to do, False when it is time to end."""
        with self._wake:
            while not (self._stopping or self._commands or self.engine.has_unfinished()):
                self._wake.wait()
            return not self._stopping

    def _carry_out_commands(self) -> list[Event]:
        events: list[Event] = []
        while self._commands:
            events += self._commands.popleft()()
        return events

    def _add(self, request: EngineRequest) -> list[Event]:
        try:
            self.engine.add(request)
        except ClientError as error:
            return [(request.request_id, error)]
        return []

    def _abort_in_engine(self, request_id: str) -> list[Event]:
        self.engine.abort(request_id)
        return []

    def _publish(self, events: list[Event] | list[RequestOutput]) -> None:
        self._stats = self.engine.stats()
        if events:
            self._call_loop(self._receive, events)

    def _call_loop(self, call: Callable[[Any], None], argument: Any) -> None:
        """Run `call` on the event loop, if there still is one."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, argument)
        except RuntimeError:
            # The loop was closed without `stop`: nobody is left to hear of it.
            with self._wake:
                self._stopping = True
