"""How does one reader get its outputs, however slow it is?"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from headway.engine.merge import merge_outputs
from headway.engine.request import RequestOutput

MERGE_AT = 64
"""Unread outputs that are kept apart. Beyond it they are one, so that what waits for a slow reader
is bounded by its answer, not by the number of steps."""


class OutputStream(AsyncIterator[RequestOutput]):
    """The outputs of one request, for one reader on the event loop.

    `abandon` is called once if the reader leaves before the request has ended.
    """

    def __init__(self, request_id: str, abandon: Callable[[], None]) -> None:
        self._request_id = request_id
        self._abandon = abandon
        self._unread: list[RequestOutput] = []
        self._error: Exception | None = None
        self._ended = False
        """Nothing will be added any more."""
        self._news = asyncio.Event()

    @property
    def num_unread(self) -> int:
        """How many outputs are kept for the reader."""
        return len(self._unread)

    def put(self, output: RequestOutput) -> None:
        """Add what the request gained."""
        self._unread.append(output)
        if len(self._unread) >= MERGE_AT:
            self._unread = [merge_outputs(self._unread)]
        self._ended = output.finished
        self._news.set()

    def fail(self, error: Exception) -> None:
        """End the stream; the reader gets what is unread, then the error."""
        self._error = error
        self._ended = True
        self._news.set()

    async def __anext__(self) -> RequestOutput:
        """Return all that was gained since the last call, as one output."""
        try:
            while not (self._unread or self._ended):
                self._news.clear()
                await self._news.wait()
        except asyncio.CancelledError:
            self._leave()
            raise
        if self._unread:
            unread, self._unread = self._unread, []
            return replace(merge_outputs(unread), request_id=self._request_id)
        error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading. Aborts the request if it has not ended; may be called again."""
        self._leave()

    def _leave(self) -> None:
        self._unread = []
        self._error = None
        if not self._ended:
            self._ended = True
            self._abandon()
