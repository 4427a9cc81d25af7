"""How do the outputs of several prompts become one stream?"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from headway.engine.output_stream import OutputStream
from headway.engine.request import RequestOutput


async def gather_outputs(
    streams: Sequence[OutputStream],
) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """Yield each output with the index of its stream, as they come.

    Closing it, or cancelling whoever waits, aborts all that is unfinished. Raises what any stream
    raises.
    """
    try:
        if len(streams) == 1:
            async for output in streams[0]:
                yield 0, output
            return
        async with aclosing(_interleave(streams)) as pairs:
            async for pair in pairs:
                yield pair
    finally:
        for stream in streams:
            await stream.aclose()


async def _interleave(
    streams: Sequence[OutputStream],
) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    waiting = {asyncio.create_task(_next(stream)): at for at, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                at = waiting.pop(task)
                output = task.result()
                yield at, output
                if not output.finished:
                    waiting[asyncio.create_task(_next(streams[at]))] = at
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _next(stream: OutputStream) -> RequestOutput:
    return await stream.__anext__()
