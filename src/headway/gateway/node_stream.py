"""Which events does a node's stream bring, and when has it been silent for too long?"""

import asyncio
from contextlib import suppress

import aiohttp

from headway.gateway.node_client import NodeFailedError, NodeTimeoutError
from headway.wire.sse import EventTooLargeError, SSEParser

END = b"[DONE]"
LAST_CHUNK_S = 0.05
"""Longest wait for the end of the body after `END`, so that the connection can be reused."""


class NodeStream:
    """The events of one streamed answer.

    One lazily re-armed timer watches the silence while somebody waits for the node; time spent
    elsewhere, as in writing to a slow client, does not count. `close` is idempotent; a stream that
    is not at its end takes its connection with it, which tells the node to stop.
    """

    def __init__(
        self, answer: aiohttp.ClientResponse, *, first_byte_timeout_s: float, gap_timeout_s: float
    ) -> None:
        self._answer = answer
        self._limit_s = first_byte_timeout_s
        self._gap_timeout_s = gap_timeout_s
        self._parser = SSEParser()
        self._loop = asyncio.get_running_loop()
        self._waiting_since: float | None = None
        self._timed_out = False
        first = min(first_byte_timeout_s, gap_timeout_s)
        self._timer = self._loop.call_later(first, self._tick)

    async def read(self) -> list[bytes]:
        """Return the data of the next whole events, at least one; the last of all is `END`.

        Raises NodeFailedError when the stream breaks or ends without `END`, and NodeTimeoutError.
        A cancelled read loses nothing.
        """
        while True:
            chunk = await self._read_bytes()
            try:
                events = self._parser.feed(chunk) if chunk else self._parser.finish()
            except EventTooLargeError as error:
                raise NodeFailedError(str(error)) from error
            if events:
                return events
            if not chunk:
                raise NodeFailedError("the stream ended without [DONE]")

    async def _read_bytes(self) -> bytes:
        self._waiting_since = self._loop.time()
        try:
            chunk = await self._answer.content.readany()
        except (aiohttp.ClientError, ConnectionError) as error:
            if self._timed_out:
                raise NodeTimeoutError(f"silent for {self._limit_s:g} s") from None
            raise NodeFailedError(f"lost connection: {error}") from error
        finally:
            self._waiting_since = None
        self._limit_s = self._gap_timeout_s
        return chunk

    def _tick(self) -> None:
        now = self._loop.time()
        since = now if self._waiting_since is None else self._waiting_since
        due = since + self._limit_s
        if now >= due:
            self._timed_out = True
            self._answer.close()
            return
        # A wait that starts later is noticed by the first tick after it is due.
        self._timer = self._loop.call_at(min(due, now + self._gap_timeout_s), self._tick)

    async def finish(self) -> None:
        """Give the connection back: the stream was read to its end."""
        self._timer.cancel()
        if not self._answer.content.is_eof():
            with suppress(TimeoutError, aiohttp.ClientError, ConnectionError):
                async with asyncio.timeout(LAST_CHUNK_S):
                    await self._answer.content.readany()
        self._answer.release()

    def close(self) -> None:
        """Stop: drop the connection."""
        self._timer.cancel()
        self._answer.close()
