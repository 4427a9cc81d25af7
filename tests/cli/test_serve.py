"""Does `headway serve` bring up real processes, keep them up, and end them?"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from headway.cli.serve import banner
from headway.config.load import parse_config
from headway.gateway.fake_answers import Behaviour
from headway.gateway.fake_node import FakeNode

PATIENCE_S = 120.0
BODY = {"model": "smollm2-135m", "prompt": "One two three", "max_tokens": 4, "temperature": 0}


def alive(pid: int) -> bool:
    """Return whether the process exists."""
    return Path(f"/proc/{pid}").exists()


class Serving:
    """A running `headway serve` on a free port."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.url = ""

    async def line(self, part: str) -> str:
        """Wait for an output line that holds `part`."""
        assert self._process.stdout is not None
        seen = []
        while line := await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S):
            seen.append(line.decode())
            if part in seen[-1]:
                return seen[-1]
        raise AssertionError(f"{part!r} was never said:\n{''.join(seen)}")

    def child(self, name: str) -> int:
        """Return the process id of the child that runs that command."""
        pid = self._process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if f"headway\0{name}\0" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
        raise AssertionError(f"no {name} runs")

    async def complete(self) -> Any:
        """Send one completion and return the answer."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/v1/completions", json=BODY) as response,
        ):
            assert response.status == 200, await response.text()
            return await response.json()

    async def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.stdout is not None
        await asyncio.wait_for(self._process.stdout.read(), PATIENCE_S)
        return await asyncio.wait_for(self._process.wait(), PATIENCE_S)


@asynccontextmanager
async def serving(folder: Path, *arguments: str) -> AsyncIterator[Serving]:
    """Run it until it says that it is ready; kill it afterwards if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway", "serve", "--port=0", *arguments),
        cwd=folder,
        stdout=PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    it = Serving(process)
    try:
        it.url = (await it.line("headway is ready on")).split()[4]
        yield it
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_the_engine_comes_back_after_a_kill_and_all_ends_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        small = ["--set=engine.num_kv_blocks=64", "--set=engine.threads=1"]
        async with serving(tmp_path, *small) as it:
            first = await it.complete()
            assert first["usage"]["completion_tokens"] == 4
            os.kill(it.child("engine"), signal.SIGKILL)
            await it.line("engine was ended by SIGKILL; starting it again")
            await it.line("engine is ready again")
            await it.line("node embedded is up")
            again = await it.complete()
            assert again["choices"][0]["text"] == first["choices"][0]["text"]
            children = [it.child("engine"), it.child("gateway")]
            assert await it.stop() == 0
            assert not [pid for pid in children if alive(pid)]

    asyncio.run(scenario())


def test_configured_nodes_are_served_without_an_engine(tmp_path: Path) -> None:
    async def scenario() -> None:
        node = FakeNode(behaviour=Behaviour(), models=("smollm2-135m",))
        await node.start()
        async with serving(tmp_path, f"--set=nodes=[{{name: fake, url: '{node.url}'}}]") as it:
            assert (await it.complete())["choices"][0]["text"] == "tok0 tok1 tok2 tok3 "
            assert await it.stop() == 0
        await node.stop()

    asyncio.run(scenario())


def test_the_banner_is_loud_only_without_keys() -> None:
    opened = banner(parse_config({}, environ={}), "http://127.0.0.1:8000", None)
    assert "OPEN MODE" in opened
    assert "curl http://127.0.0.1:8000/v1/chat/completions" in opened
    assert "Authorization" not in opened
    for tier in ("critical", "normal", "bulk"):
        assert f"  tier {tier}: " in opened
    raw = {"keys": [{"key": "sk-1", "tenant": "a"}]}
    keyed = banner(parse_config(raw, environ={}), "http://127.0.0.1:8000", Path("headway.yaml"))
    assert "OPEN MODE" not in keyed
    assert "Authorization: Bearer YOUR_KEY" in keyed
    assert "sk-1" not in keyed
