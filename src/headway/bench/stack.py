"""How is a headway of our own started for a measurement, and stopped after it?"""

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp
import msgspec

from headway.errors import NodeError
from headway.wire.listen import open_socket

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.2
_TAIL_CHARS = 2000


class Stack:
    """Gateway and engine on a free port, as `headway serve` runs them. An async context manager.

    No queue time-out applies in it, so that a slow policy shows as long waits and not as refusals.
    """

    def __init__(
        self,
        policy: str,
        *,
        settings: Mapping[str, object] | None = None,
        preexec_fn: Callable[[], None] | None = None,
    ) -> None:
        self.policy = policy
        with open_socket("127.0.0.1", 0) as probe:
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self._settings = {} if settings is None else dict(settings)
        self._preexec_fn = preexec_fn

    async def __aenter__(self) -> "Stack":
        """Start it and wait until it serves. Raises NodeError with the end of its log."""
        self._folder = tempfile.TemporaryDirectory(prefix="headway-bench-")
        self._log = Path(self._folder.name) / "serve.log"
        config = Path(self._folder.name) / "headway.yaml"
        config.write_bytes(msgspec.json.encode(_NO_TIMEOUTS))
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headway", "serve", f"--config={config}"),
                *(f"--port={self._port}", f"--policy={self.policy}"),
                *(f"--set={key}={msgspec.json.encode(v).decode()}" for key, v in self._items()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=self._preexec_fn,
            )
        try:
            await self._wait_until_ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Stop it: with SIGTERM, and with SIGKILL when that takes too long."""
        try:
            await _stop(self._process)
        finally:
            self._folder.cleanup()

    def _items(self) -> list[tuple[str, object]]:
        return sorted(self._settings.items())

    async def _wait_until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_S
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while self._process.returncode is None and loop.time() < deadline:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self.url}/health") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(_POLL_S)
        tail = self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARS:].strip()
        raise NodeError(f"headway serve --policy {self.policy} did not start:\n{tail}")


_NO_TIMEOUTS = {
    "tiers": {name: {"queue_timeout_s": None} for name in ("critical", "normal", "bulk")}
}


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
