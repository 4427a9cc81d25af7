"""Do large request bodies hold up everybody else?

Starts a server, opens steady streams and probes /health every 100 ms, first in quiet, then while
another process sends 20 bodies of 5 MB at once, again and again, in one shape after the other.
Prints for each shape the gaps of the streams, the probe's times and what the bodies were answered.
Exit code 1 when a gap grew by more than 50 ms or the probe's p99 is not below 100 ms.

    python bench/large_bodies.py gateway     # `headway gateway` before a fake node of 50 tokens/s
    python bench/large_bodies.py serve       # `headway serve`: gateway and the real model
    python bench/large_bodies.py engine      # `headway engine` alone
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from statistics import quantiles
from typing import Any

import aiohttp

from headway.bench.stack import Stack
from headway.wire.chat import MAX_MESSAGES
from headway.wire.listen import open_socket

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NUM_STREAMS = 5
PROBE_EVERY_S = 0.1
PAUSE_S = 0.5
"""Between the salvos, so that what is measured is not the machine's two cores being busy."""
GROWTH_S, PROBE_P99_S = 0.05, 0.1
"""What is allowed: a stream's longest gap may grow by this much; the probe's p99 is below that."""
MAX_BODY = {"gateway.max_body_bytes": 8 * 2**20, "engine.max_body_bytes": 8 * 2**20}
"""Above the size of the bodies, for else they are refused by their announced length."""


def filled(path: str, head: str, item: str, tail: str) -> Callable[[int], tuple[str, bytes]]:
    """Return a shape: `item` repeated between `head` and `tail` up to a size."""

    def build(size: int) -> tuple[str, bytes]:
        count = (size - len(head) - len(tail)) // len(item.encode())
        body = head + item * count
        return path, (body.removesuffix(",") + tail).encode()

    return build


def keyed(field: str, value: str) -> Callable[[int], tuple[str, bytes]]:
    """Return a shape: a mapping of very many keys."""

    def build(size: int) -> tuple[str, bytes]:
        entries = ",".join(f'"{key}":{value}' for key in range(size // (10 + len(value))))
        return CHAT, (f'{HEAD}"messages":[{HI}],"{field}":{{{entries}}}}}').encode()

    return build


HEAD = '{"model":"MODEL",'
HI = '{"role":"user","content":"hi"}'


def messages_of_equal_size(size: int) -> tuple[str, bytes]:
    """Return as many messages as are allowed."""
    message = f'{{"role":"user","content":"{"x" * (size // MAX_MESSAGES - 40)}"}}'
    messages = ",".join([message] * MAX_MESSAGES)
    return CHAT, f'{HEAD}"messages":[{messages}]}}'.encode()


SHAPES: dict[str, Callable[[int], tuple[str, bytes]]] = {
    "one text": filled(CHAT, HEAD + '"messages":[{"role":"user","content":"', "word ", '"}]}'),
    "one text, escaped": filled(
        CHAT, HEAD + '"messages":[{"role":"user","content":"', "\\u4e2d\\n", '"}]}'
    ),
    "one prompt": filled(COMPLETIONS, HEAD + '"prompt":"', "word ", '"}'),
    "2,048 messages": messages_of_equal_size,
    "many messages": filled(CHAT, HEAD + '"messages":[', HI + ",", "]}"),
    "many parts": filled(
        CHAT,
        HEAD + '"messages":[{"role":"user","content":[',
        '{"type":"text","text":"a"},',
        "]}]}",
    ),
    "deep nesting": filled(CHAT, HEAD + '"messages":', "[", ""),
    "logit_bias": keyed("logit_bias", "1"),
    "metadata": keyed("metadata", '"v"'),
    "template variables": filled(
        CHAT, f'{HEAD}"messages":[{HI}],"chat_template_kwargs":{{"a":[', "[],", "]}}"
    ),
    "tools": filled(CHAT, f'{HEAD}"messages":[{HI}],"tools":[', '{"a":1},', "]}"),
    "token ids": filled(COMPLETIONS, HEAD + '"prompt":[', "1234,", "]}"),
    "lists of token ids": filled(COMPLETIONS, HEAD + '"prompt":[', "[1],", "]}"),
    "many prompts": filled(COMPLETIONS, HEAD + '"prompt":[', '"a",', "]}"),
    "not a number": filled(
        CHAT, HEAD + '"temperature":NaN,"messages":[{"role":"user","content":"', "word ", '"}]}'
    ),
    "half a surrogate": filled(
        CHAT, HEAD + '"messages":[{"role":"user","content":"', "word ", '\\ud800"}]}'
    ),
    "unknown field": filled(CHAT, HEAD + '"', "a", '":1}'),
}


def flood(
    address: tuple[str, int], shape: str, model: str, size: int, count: int, seconds: float
) -> Counter[str]:
    """Send `count` bodies at once, again and again; return what they were answered."""
    # The callers would be on other machines: they get what the server leaves of this one.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(19)
    path, body = SHAPES[shape](size)
    body = body.replace(b"MODEL", model.encode(), 1)
    until = time.monotonic() + seconds
    seen: Counter[str] = Counter()

    def one() -> str:
        connection = http.client.HTTPConnection(*address, timeout=120)
        try:
            # A server may refuse before it has read all, and close.
            with suppress(ConnectionError):
                connection.request("POST", path, body, {"content-type": "application/json"})
            return str(connection.getresponse().status)
        except (ConnectionError, http.client.HTTPException, TimeoutError) as error:
            return type(error).__name__
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        while time.monotonic() < until:
            seen.update(pool.map(lambda _: one(), range(count)))
            time.sleep(PAUSE_S)
    return seen


async def stream(session: aiohttp.ClientSession, url: str, model: str, gaps: list[float]) -> None:
    """Follow one stream and note its gaps, in seconds, until cancelled."""
    body = {"model": model, "prompt": "Once upon", "max_tokens": 7000, "stream": True}
    last: float | None = None
    async with session.post(f"{url}{COMPLETIONS}", json={**body, "ignore_eos": True}) as response:
        response.raise_for_status()
        async for _ in response.content.iter_any():
            now = time.perf_counter()
            if last is not None:
                gaps.append(now - last)
            last = now


async def probe(session: aiohttp.ClientSession, url: str, times: list[float]) -> None:
    """Ask /health every 100 ms, however long the last answer took, until cancelled."""

    async def one() -> None:
        start = time.perf_counter()
        async with session.get(f"{url}/health") as response:
            await response.read()
            response.raise_for_status()
        times.append(time.perf_counter() - start)

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(one())
            await asyncio.sleep(PROBE_EVERY_S)


async def measure(url: str, model: str, seconds: float, load: Any) -> dict[str, Any]:
    """Return gaps and probe times over `seconds`, under `load` if that is a callable."""
    gaps: list[list[float]] = [[] for _ in range(NUM_STREAMS)]
    probes: list[float] = []
    answers: Counter[str] = Counter()
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        tasks = [asyncio.create_task(stream(session, url, model, one)) for one in gaps]
        await asyncio.sleep(1.5)
        for one in gaps:
            one.clear()
        tasks.append(asyncio.create_task(probe(session, url, probes)))
        try:
            if load is None:
                await asyncio.sleep(seconds)
            else:
                answers = await load()
        finally:
            failed = [task.exception() for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    flat = [gap for one in gaps for gap in one]
    return {
        "gap_s": spread(flat),
        "probe_s": spread(probes),
        "answers": dict(answers),
        "failed": [repr(error) for error in failed],
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return p50, p99 and the largest."""
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p99": cuts[98], "max": max(values)}


async def run(url: str, model: str, arguments: argparse.Namespace) -> bool:
    """Measure every shape, print a line for each, and tell whether all kept the bounds."""
    loop = asyncio.get_running_loop()
    port = int(url.rpartition(":")[2])
    quiet = await measure(url, model, arguments.seconds, None)
    report("quiet", quiet, quiet)
    good = True
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        for shape in arguments.shape or SHAPES:
            call = (("127.0.0.1", port), shape, model, int(arguments.megabytes * 1e6))

            async def load(call: tuple[Any, ...] = call) -> Counter[str]:
                sent = pool.apply_async(flood, (*call, arguments.count, arguments.seconds))
                return await loop.run_in_executor(None, sent.get)

            loaded = await measure(url, model, arguments.seconds, load)
            good = report(shape, loaded, quiet) and good
    return good


def report(name: str, found: dict[str, Any], quiet: dict[str, Any]) -> bool:
    """Print one line, and tell whether it keeps the bounds."""
    gap, probe_s = found["gap_s"], found["probe_s"]
    grown = gap["max"] - quiet["gap_s"]["max"]
    good = grown <= GROWTH_S and probe_s["p99"] < PROBE_P99_S and not found["failed"]
    cells = [
        name,
        *(f"{1e3 * gap[key]:.0f}" for key in ("p50", "p99", "max")),
        f"{1e3 * grown:+.0f}",
        *(f"{1e3 * probe_s[key]:.0f}" for key in ("p50", "p99")),
        " ".join(f"{status}x{count}" for status, count in sorted(found["answers"].items())),
        "" if good else "NO " + " ".join(found["failed"]),
    ]
    sys.stdout.write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()
    return good


@asynccontextmanager
async def started(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python module of ours as long as the block lasts."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with open_socket("127.0.0.1", 0) as listener:
        return int(listener.getsockname()[1])


def settings(values: dict[str, object]) -> list[str]:
    """Return them as the command line takes them."""
    return [f"--set={key}={json.dumps(value)}" for key, value in values.items()]


async def wait_until_ready(url: str) -> None:
    """Return once /health answers 200."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(120):
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def server(mode: str) -> AsyncIterator[tuple[str, str]]:
    """Run what is measured; yield its root and the model that it serves."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if mode == "serve":
        async with Stack("qos", settings=MAX_BODY) as stack:
            yield stack.url, "smollm2-135m"
    elif mode == "engine":
        values: dict[str, object] = {**MAX_BODY, "engine.port": port}
        async with started("headway", "engine", *settings(values)):
            await wait_until_ready(url)
            yield url, "smollm2-135m"
    else:
        fake = ("headway.gateway.fake_node", "--port=0", "--tokens=7000", "--tokens-per-s=50")
        async with started(*fake, "--refuse-over=1000000") as node:
            assert node.stdout is not None
            said = (await node.stdout.readline()).decode()
            nodes = [{"name": "fake", "url": said.split()[-1]}]
            values = {**MAX_BODY, "gateway.port": port, "nodes": nodes}
            async with started("headway", "gateway", *settings(values)):
                await wait_until_ready(url)
                yield url, "fake-model"


async def main(arguments: argparse.Namespace) -> bool:
    """Start the server and measure it."""
    titles = ("bodies", "gap p50 ms", "p99", "max", "grown", "probe p50 ms", "p99", "answers", "")
    sys.stdout.write("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|\n")
    async with server(arguments.mode) as (url, model):
        return await run(url, model, arguments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("gateway", "serve", "engine"))
    parser.add_argument("--megabytes", type=float, default=5.0)
    parser.add_argument("--count", type=int, default=20, help="bodies at once")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each shape")
    parser.add_argument("--shape", action="append", choices=SHAPES)
    sys.exit(0 if asyncio.run(main(parser.parse_args())) else 1)
