"""How does a node's stream become the client's?"""

import asyncio

from headway.gateway.events import Translator
from headway.gateway.node_client import NodeFailedError
from headway.gateway.node_stream import END, NodeStream
from headway.wire.event_stream import EventStream
from headway.wire.sse import DONE, frame


class Relay:
    """One node's stream, frame by frame.

    Frames are held back until the first content, so that a node that dies before it can be replaced
    unseen. The client's head waits for it too, but not for longer than a heartbeat: by then the
    node's status is known, and idle time-outs on the way have to be kept from cutting.
    """

    def __init__(self, stream: NodeStream, translator: Translator) -> None:
        self.stream = stream
        self.translator = translator
        self.done = False
        self._held: list[bytes] = []
        self._broken: NodeFailedError | None = None
        """What the next read raises, after what came before it was passed on."""

    async def open(self, out: EventStream, heartbeat_s: float) -> None:
        """Wait for the first content; send the head alone when it takes long.

        Raises NodeFailedError and NodeTimeoutError; nothing but the head was sent then.
        """
        if not out.started:
            try:
                async with asyncio.timeout(heartbeat_s):
                    await self._hold()
                return
            except TimeoutError:
                if not out.started:
                    await out.start()
        await self._hold()

    async def _hold(self) -> None:
        while not (self.translator.num_events or self.translator.answered or self.done):
            self._held.append(await self._read())

    async def next(self) -> bytes:
        """Return the next frames; `done` says whether they are the last.

        Raises NodeFailedError and NodeTimeoutError.
        """
        if self._held:
            frames = b"".join(self._held)
            self._held.clear()
            return frames
        return await self._read()

    async def _read(self) -> bytes:
        if self._broken is not None:
            raise self._broken
        frames: list[bytes] = []
        for data in await self.stream.read():
            if data == END:
                self.done = True
                usage = self.translator.last_event()
                frames.extend((DONE,) if usage is None else (frame(usage), DONE))
                break
            try:
                event = self.translator.event(data)
            except NodeFailedError as error:
                self._broken = error
                break
            if event is not None:
                frames.append(frame(event))
        if self._broken is not None and not frames:
            raise self._broken
        return b"".join(frames)
