"""What keeps the child processes alive, and in which order do they stop?

Children start in order, each once the one before is ready, and stop in the opposite order, so that
what takes requests drains before what answers them. A child that dies is started again after a
pause that doubles each time. A child that ends with code 2 was refused its settings: trying again
cannot help, so everything stops with that code.
"""

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from headway.cli.lifeline import dies_with_parent

EXIT_REFUSED = 2
_HEALTH_PAUSE_S = 0.1
_HEALTH_TIMEOUT_S = 2.0
SAME_SIGNAL_S = 0.5
"""A group signal often comes twice, directly and through `make`; that is one wish to stop."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process to keep alive."""

    name: str
    argv: tuple[str, ...]
    health_url: str
    """Answers 200 once the child can serve."""
    stop_timeout_s: float
    """Time from SIGTERM to SIGKILL."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between starts, in seconds, and how many first starts may fail."""

    first_s: float = 0.5
    longest_s: float = 30.0
    forgiven_after_s: float = 60.0
    """A child that was ready for this long starts again after the first pause."""
    max_first_starts: int = 5
    """Starts without ever having been ready, after which it is given up."""

    def pause_s(self, failures: int) -> float:
        """Return the pause after the given number of failures in a row, 1 or more."""
        return min(self.first_s * 2.0 ** min(failures - 1, 30), self.longest_s)


class Supervisor:
    """Runs children until a signal, a refused child or one that never starts."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        *,
        say: Callable[[str], None],
        on_ready: Callable[[], None],
        backoff: Backoff | None = None,
        same_signal_s: float = SAME_SIGNAL_S,
    ) -> None:
        self._say = say
        self._same_signal_s = same_signal_s
        self._on_ready = on_ready
        settings = Backoff() if backoff is None else backoff
        self._children = [_Child(spec, settings, say) for spec in specs]
        self._stopping_since: float | None = None

    async def run(self) -> int:
        """Return the exit code: 0 after an orderly stop, 2 after a refusal, else 1."""
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[int] = loop.create_future()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal, signum)
        keepers: list[asyncio.Task[None]] = []
        bring_up = asyncio.create_task(self._bring_up(keepers))
        try:
            code = await self._end
            bring_up.cancel()
            for child in reversed(self._children):
                if not await child.stop() and code == 0:
                    code = 1
            return code
        finally:
            for child in self._children:
                child.kill()
            for task in (bring_up, *keepers):
                task.cancel()
            await asyncio.gather(bring_up, *keepers, return_exceptions=True)

    async def _bring_up(self, keepers: list[asyncio.Task[None]]) -> None:
        for child in self._children:
            keepers.append(asyncio.create_task(self._keep(child)))
            await child.ready.wait()
        self._on_ready()

    async def _keep(self, child: "_Child") -> None:
        try:
            code = await child.keep()
        except OSError as error:
            self._say(f"{child.spec.name} cannot be started: {error}")
            code = 1
        if not self._end.done():
            self._end.set_result(code)

    def _on_signal(self, signum: int) -> None:
        now = asyncio.get_running_loop().time()
        if self._stopping_since is None:
            self._stopping_since = now
            self._say(f"{signal.Signals(signum).name}: draining; a second signal stops at once")
            if not self._end.done():
                self._end.set_result(0)
        elif now - self._stopping_since > self._same_signal_s:
            self._say("second signal: stopping at once")
            for child in self._children:
                child.kill()


class _Child:
    """One process and its restarts."""

    def __init__(self, spec: ChildSpec, backoff: Backoff, say: Callable[[str], None]) -> None:
        self.spec = spec
        self.ready = asyncio.Event()
        """Set once it has been able to serve; stays set over restarts."""
        self._backoff = backoff
        self._say = say
        self._process: Process | None = None
        self._stopping = asyncio.Event()
        self._killed = False

    async def keep(self) -> int:
        """Start it again and again; return the code to stop with, or 0 after `stop`."""
        failures = 0
        while True:
            code, ready_s = await self._run_once()
            if self._stopping.is_set():
                return 0
            if code == EXIT_REFUSED:
                return EXIT_REFUSED
            failures = 1 if ready_s > self._backoff.forgiven_after_s else failures + 1
            if not self.ready.is_set() and failures >= self._backoff.max_first_starts:
                self._say(f"{self.spec.name} never became ready in {failures} starts; giving up")
                return 1
            pause_s = self._backoff.pause_s(failures)
            self._say(f"{self.spec.name} {_ending(code)}; starting it again in {pause_s:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
                return 0

    async def stop(self) -> bool:
        """End it with SIGTERM, then SIGKILL; return whether it ended by itself in time."""
        self._stopping.set()
        process = self._process
        if process is None:
            return True
        _signal_group(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), self.spec.stop_timeout_s)
        except TimeoutError:
            self._say(f"{self.spec.name} did not stop in {self.spec.stop_timeout_s:g} s: killed")
            self.kill()
            await process.wait()
        return not self._killed

    def kill(self) -> None:
        """End it at once, with whatever it has started."""
        self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._killed = True
            _signal_group(self._process, signal.SIGKILL)

    async def _run_once(self) -> tuple[int, float]:
        """Run it until it ends; return its code and for how many seconds it was ready."""
        loop = asyncio.get_running_loop()
        process = await asyncio.create_subprocess_exec(
            *self.spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            process_group=0,
            preexec_fn=dies_with_parent(),
        )
        self._process = process
        ended = asyncio.create_task(process.wait())
        if self._stopping.is_set():
            _signal_group(process, signal.SIGTERM)
        again = self.ready.is_set()
        ready_at = None
        if await self._becomes_ready(ended):
            ready_at = loop.time()
            self.ready.set()
            if again:
                self._say(f"{self.spec.name} is ready again")
        code = await ended
        return code, 0.0 if ready_at is None else loop.time() - ready_at

    async def _becomes_ready(self, ended: "asyncio.Task[int]") -> bool:
        timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while not ended.done():
                try:
                    async with session.get(self.spec.health_url) as response:
                        if response.status == 200:
                            return True
                except (aiohttp.ClientError, TimeoutError):
                    pass  # Not listening yet; whether it still lives is seen in `ended`.
                await asyncio.wait({ended}, timeout=_HEALTH_PAUSE_S)
        return False


def _signal_group(process: Process, signum: int) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signum)


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
