"""Where does work on a large text run, so that nobody else waits for it?

Small work runs at once on the event loop, which takes less time than handing it over. Large work
runs on a few threads, first come first served, so that at most as many pieces as there are threads
compete with the loop for the interpreter lock, however many arrive together. After each piece its
thread rests for as long as it worked, so that the loop has the lock to itself at least half of the
time. What one call into C does is not interrupted; `json_size.py` bounds how long it can take.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

INLINE_BODY_BYTES = 32 * 1024
"""Bodies up to this size are read on the loop: within a millisecond whatever they hold."""

T = TypeVar("T")


class Offload:
    """Owns the threads. Use it in one event loop, and close it."""

    def __init__(self, name: str, *, inline_up_to: int, num_threads: int = 1) -> None:
        """`inline_up_to`: the largest size, in the unit of `run`, that stays on the loop."""
        self._inline_up_to = inline_up_to
        self._rests_until = 0.0
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix=name)

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises. Cancelled in line, it never runs."""
        if size <= self._inline_up_to:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work)

    def _work(self, work: Callable[[], T]) -> T:
        time.sleep(max(0.0, self._rests_until - time.monotonic()))
        started = time.thread_time()
        try:
            return work()
        finally:
            self._rests_until = time.monotonic() + time.thread_time() - started

    def close(self) -> None:
        """Let the threads end. What still waits in line is dropped."""
        self._threads.shutdown(wait=False, cancel_futures=True)
