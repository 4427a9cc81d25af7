"""How does the answer to an accepted request leave, whole or as a stream?

A stream starts with its first output, so that a request that fails at once still gets a status; if
that takes long, it starts earlier, to carry heartbeats. What fails later is told by an error event,
after which the stream ends without `[DONE]`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from starlette.types import Scope, Send

from headway.engine.answers import Answer, Tally
from headway.engine.gather import gather_outputs
from headway.engine.merge import merge_outputs
from headway.engine.output_stream import OutputStream
from headway.engine.request import FinishReason, RequestOutput
from headway.engine.timing import Timing
from headway.errors import HeadwayError, ServerError
from headway.wire.errors import error_response
from headway.wire.event_stream import EventStream
from headway.wire.http import send_bytes
from headway.wire.routing import reply_headers
from headway.wire.sse import DONE, frame

_log = logging.getLogger(__name__)

Outputs = AsyncGenerator[tuple[int, RequestOutput], None]


class GenerationError(ServerError):
    """One answer broke off inside the engine, say because the logits were not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer on its way."""

    answer: Answer
    streams: Sequence[OutputStream]
    """The engine's outputs, one for each prompt."""
    timing: Timing
    include_usage: bool
    continuous_usage: bool
    write_timeout_s: float
    heartbeat_s: float
    scope: Scope
    send: Send

    async def whole(self) -> None:
        """Send the answer at once. Raises what the engine raises, with nothing sent."""
        gained: list[list[RequestOutput]] = [[] for _ in self.streams]
        async with aclosing(gather_outputs(self.streams)) as outputs:
            async for prompt, output in outputs:
                _check(output)
                self.timing.note(prompt, output)
                gained[prompt].append(output)
        body = self.answer.whole([merge_outputs(parts) for parts in gained])
        await send_bytes(self.send, 200, body, reply_headers(self.scope))

    async def stream(self) -> None:
        """Send the answer event by event.

        Raises what the engine raises when nothing was sent yet, else tells it in an error event and
        raises GenerationError; WriteTimeoutError when the client does not read.
        """
        async with aclosing(gather_outputs(self.streams)) as outputs:
            first = asyncio.create_task(_first(outputs))
            try:
                await asyncio.wait([first], timeout=self.heartbeat_s)
                if first.done():
                    _check(first.result()[1])
                await self._events(first, outputs)
            finally:
                # Nobody may be inside the generator when it is closed.
                first.cancel()
                await asyncio.wait([first])

    async def _events(
        self, first: "asyncio.Task[tuple[int, RequestOutput]]", outputs: Outputs
    ) -> None:
        stream = EventStream(
            self.scope,
            self.send,
            write_timeout_s=self.write_timeout_s,
            heartbeat_s=self.heartbeat_s,
            headers=reply_headers(self.scope),
        )
        async with stream:
            await stream.start()
            try:
                tally = Tally()
                await self._relay(*await first, tally, stream)
                async for prompt, output in outputs:
                    await self._relay(prompt, output, tally, stream)
            except HeadwayError as error:
                await stream.finish(frame(error_response(error)[1]))
                raise GenerationError("the answer broke off") from error
            last = frame(self.answer.usage_event(tally.usage)) if self.include_usage else b""
            await stream.finish(last + DONE)

    async def _relay(
        self, prompt: int, output: RequestOutput, tally: Tally, stream: EventStream
    ) -> None:
        _check(output)
        self.timing.note(prompt, output)
        tally.note(prompt, output)
        usage = tally.usage if self.continuous_usage else None
        events = self.answer.events(prompt, output, usage)
        if events:
            await stream.write(b"".join(map(frame, events)))


async def _first(outputs: Outputs) -> tuple[int, RequestOutput]:
    return await anext(outputs)


def _check(output: RequestOutput) -> None:
    """Raise GenerationError when a choice broke off."""
    for choice in output.choices:
        if choice.finish_reason in (FinishReason.ERROR, FinishReason.ABORT):
            _log.error("request %s broke off: %s", output.request_id, choice.error)
            raise GenerationError(f"choice {choice.index}: {choice.error}")
