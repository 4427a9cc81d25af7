"""Where a test watches supervised processes: each event and each end comes over a socket."""

import asyncio
import json
import signal
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE_S = 30.0
SERVE = str(Path(__file__).with_name("fake_serve.py"))


class Event(NamedTuple):
    """Something that a child told, or its end, which is `gone`."""

    name: str
    what: str
    pid: int


class Stage:
    """The test's end of the sockets. A child is well while it is connected."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._writers: dict[str, StreamWriter] = {}
        self.well = True
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        """Names of the children whose health was asked for."""

    async def start(self) -> None:
        """Listen for children and for questions after their health."""
        self._children = await asyncio.start_server(self._child, "127.0.0.1", 0)
        self._health = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._children.sockets[0].getsockname()[1]
        self.health = f"http://127.0.0.1:{self._health.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop listening."""
        for server in (self._children, self._health):
            server.close()
            await server.wait_closed()

    async def expect(self, name: str, what: str) -> int:
        """Wait for that event and return the child's process id."""
        while True:
            event = await asyncio.wait_for(self._events.get(), PATIENCE_S)
            self.seen.append(event)
            if (event.name, event.what) == (name, what):
                return event.pid

    async def expect_all(self, names: Iterable[str], what: str) -> None:
        """Wait for that event of every one of `names`, in any order."""
        missing = set(names) - {event.name for event in self.seen if event.what == what}
        while missing:
            event = await asyncio.wait_for(self._events.get(), PATIENCE_S)
            self.seen.append(event)
            if event.what == what:
                missing.discard(event.name)

    def release(self, name: str) -> None:
        """Let a holding child end."""
        self._writers[name].write(b".")

    async def _child(self, reader: StreamReader, writer: StreamWriter) -> None:
        name, pid = "", 0
        while line := await reader.readline():
            name, what, number = line.decode().split()
            pid = int(number)
            self._writers[name] = writer
            self._events.put_nowait(Event(name, what, pid))
        self._writers.pop(name, None)
        self._events.put_nowait(Event(name, "gone", pid))
        writer.close()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        name = request.split()[1].decode().strip("/")
        self.asked.put_nowait(name)
        status = "200 OK" if self.well and name in self._writers else "503 Service Unavailable"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()


class Supervised(NamedTuple):
    """A running supervisor with its stage."""

    stage: Stage
    process: Process

    def signal(self, signum: int) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(signum)

    async def line(self, part: str) -> str:
        """Wait for an output line that holds `part`."""
        assert self.process.stdout is not None
        while line := await asyncio.wait_for(self.process.stdout.readline(), PATIENCE_S):
            if part in line.decode():
                return line.decode().strip()
        raise AssertionError(f"the supervisor ended without saying {part!r}")

    async def code(self) -> int:
        """Wait for its end and return the exit code."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


@asynccontextmanager
async def supervised(
    children: Mapping[str, str],
    *,
    stop_timeout_s: float = PATIENCE_S,
    backoff: Mapping[str, float] | None = None,
    same_signal_s: float = 0.0,
    well: bool = True,
) -> AsyncIterator[Supervised]:
    """Run a supervisor over fake children, by name and mode."""
    stage = Stage()
    stage.well = well
    await stage.start()
    settings: dict[str, Any] = {
        "children": dict(children),
        "port": stage.port,
        "health": stage.health,
        "stop_timeout_s": stop_timeout_s,
        "backoff": {"first_s": 0.01} if backoff is None else dict(backoff),
        "same_signal_s": same_signal_s,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVE, json.dumps(settings), stdout=PIPE
    )
    try:
        yield Supervised(stage, process)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.communicate()
        await stage.stop()
