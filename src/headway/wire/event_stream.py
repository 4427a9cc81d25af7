"""How do events reach a client that may be slow, silent or gone?

One lazily re-armed timer per stream watches both sides: it cuts the stream when a single write is
blocked for too long, and sends a comment when nothing was written for a while. A write costs two
clock reads, not a timer.
"""

import asyncio
from types import TracebackType

from starlette.types import Scope, Send

from headway.wire.http import Headers
from headway.wire.sse import COMMENT, DONE, frame

ABORT_EXTENSION = "headway.abort"
"""ASGI extension: `abort` drops the connection without waiting for the client to read."""

SSE_HEADERS: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class WriteTimeoutError(Exception):
    """The client did not read for longer than the write time-out. Its connection was cut."""


class EventStream:
    """The event stream of one response. Enter it in the task that writes.

    ```
    async with EventStream(scope, send, write_timeout_s=30, heartbeat_s=10) as stream:
        await stream.start()
        await stream.event(b'{"a":1}')
        await stream.finish()
    ```
    Raises WriteTimeoutError on leaving when the client stopped reading. Leaving without `finish`
    after `start` lets the server close the connection, so that the client sees a broken stream and
    never a complete one.
    """

    def __init__(
        self,
        scope: Scope,
        send: Send,
        *,
        write_timeout_s: float,
        heartbeat_s: float,
        headers: Headers = (),
    ) -> None:
        self._scope = scope
        self._asgi_send = send
        self._write_timeout_s = write_timeout_s
        self._heartbeat_s = heartbeat_s
        self._headers = headers
        self._blocked_since: float | None = None
        self._quiet_since = 0.0
        self._timed_out = False
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self.started = False

    async def __aenter__(self) -> "EventStream":
        """Bind the stream to the running task."""
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an EventStream needs a running task")
        self._owner = task
        self._cancelling = task.cancelling()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the timer; turn our own cancellation into WriteTimeoutError."""
        if self._timer is not None:
            self._timer.cancel()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if not self._timed_out:
            return
        extension = self._scope.get("extensions", {}).get(ABORT_EXTENSION)
        if extension is not None:
            extension["abort"]()
        if self._owner.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            # The server hears of the abort before the app returns, and so expects no more of it.
            await asyncio.sleep(0)
            raise WriteTimeoutError from None

    def start_within(self, seconds: float) -> None:
        """Start by itself, with a comment, unless started by then: whoever waits sees life."""
        self._timer = self._loop.call_later(seconds, self._start_late)

    def _start_late(self) -> None:
        self.started = True
        self._heartbeat = self._loop.create_task(self._start_and_beat())

    async def _start_and_beat(self) -> None:
        await self.start()
        await self._write(COMMENT, more=True)

    async def start(self) -> None:
        """Send status 200 and the headers, and start to watch the time."""
        self.started = True
        if self._timer is not None:
            self._timer.cancel()
        head = [*SSE_HEADERS, *self._headers]
        await self._asgi_send({"type": "http.response.start", "status": 200, "headers": head})
        self._quiet_since = self._loop.time()
        self._arm(self._quiet_since)

    async def event(self, data: bytes) -> None:
        """Send `data` as one event."""
        await self.write(frame(data))

    async def write(self, frames: bytes) -> None:
        """Send whole frames as they are."""
        if self._heartbeat is not None and not self._heartbeat.done():
            await asyncio.wait([self._heartbeat])
        await self._write(frames, more=True)

    async def finish(self, last: bytes = DONE) -> None:
        """Send the last frame and end the response."""
        if self._heartbeat is not None and not self._heartbeat.done():
            await asyncio.wait([self._heartbeat])
        await self._write(last, more=False)

    async def _write(self, frames: bytes, *, more: bool) -> None:
        self._blocked_since = self._loop.time()
        await self._asgi_send({"type": "http.response.body", "body": frames, "more_body": more})
        self._blocked_since = None
        self._quiet_since = self._loop.time()

    def _arm(self, now: float) -> None:
        """Wake when the next thing can be due; a write that starts later cannot be due sooner."""
        if self._blocked_since is not None:
            due = self._blocked_since + self._write_timeout_s
        else:
            due = min(self._quiet_since + self._heartbeat_s, now + self._write_timeout_s)
        self._timer = self._loop.call_at(max(due, now), self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._blocked_since is not None:
            if now >= self._blocked_since + self._write_timeout_s:
                self._timed_out = True
                self._owner.cancel()
                return
        elif now >= self._quiet_since + self._heartbeat_s:
            self._quiet_since = now
            self._heartbeat = self._loop.create_task(self._write(COMMENT, more=True))
        self._arm(now)
