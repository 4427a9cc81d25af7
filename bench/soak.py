"""Does anything leak after minutes of mixed load with clients that leave at random?

Runs our own stack, sends a mix of tiers, lengths, streams and bad requests, leaves a share of them
at a random moment, and samples the memory of its processes. Prints JSON; exit code 1 when something
is not idle afterwards or memory still grows.

    python bench/soak.py --minutes 10
"""

import argparse
import asyncio
import json
import re
import sys
from collections import Counter
from contextlib import suppress
from random import Random
from statistics import mean
from typing import Any

import aiohttp
import psutil

from headway.bench.stack import Stack
from headway.gateway.explain import REMEMBERED

MODEL = "smollm2-135m"
WORDS = ("river", "stone", "cloud", "window", "letter", "market", "engine", "silver", "garden")
LEAVES = 0.3
"""Share of the requests whose client leaves early."""
GROWTH = 0.05
"""Most growth of memory from the third to the last fifth that counts as none."""
HISTORY_BATCH = 50
NAMES = r"(?:headway_(?:queue_depth|queue_tokens|inflight))"


def body_of(rng: Random) -> dict[str, Any]:
    """Return a request: mostly good, some of them refused."""
    body: dict[str, Any] = {
        "model": MODEL,
        "prompt": " ".join(rng.choices(WORDS, k=rng.choice((4, 40, 200)))),
        "max_tokens": rng.choice((1, 8, 40)),
        "stream": rng.random() < 0.7,
        "n": rng.choice((1, 1, 1, 2)),
        "temperature": rng.choice((0, 1)),
    }
    if rng.random() < 0.05:
        body[rng.choice(("temperature", "max_tokens", "n"))] = rng.choice((-1, "x", 1e9))
    return body


async def one(session: aiohttp.ClientSession, url: str, rng: Random, seen: Counter[str]) -> None:
    """Send one request; perhaps leave it."""
    leaves = rng.random() < LEAVES
    headers = {"X-Priority": rng.choice(("critical", "normal", "bulk"))}
    timeout = aiohttp.ClientTimeout(total=rng.expovariate(1.0) if leaves else 300)
    try:
        async with session.post(
            f"{url}/v1/completions", json=body_of(rng), headers=headers, timeout=timeout
        ) as response:
            await response.read()
            seen[str(response.status)] += 1
    except TimeoutError:
        seen["left"] += 1
    except aiohttp.ClientError as error:
        seen[type(error).__name__] += 1


async def fill_history(url: str) -> None:
    """Send bad requests until the gateway's memory of ended requests, which is bounded, is full."""
    async with aiohttp.ClientSession() as session:
        for _ in range(0, REMEMBERED, HISTORY_BATCH):
            bad = (
                session.post(f"{url}/v1/completions", json={"model": MODEL, "prompt": ""})
                for _ in range(HISTORY_BATCH)
            )
            for response in await asyncio.gather(*bad):
                response.release()


async def caller(url: str, seed: int, until: float, seen: Counter[str]) -> None:
    """Send requests one after the other."""
    rng = Random(seed)
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession() as session:
        while loop.time() < until:
            await one(session, url, rng, seen)


def memory_mib(root: psutil.Process) -> dict[str, float]:
    """Resident MiB of each process of the stack, by its command."""
    found = {}
    for process in root.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = process.cmdline()
            names = [name for name in ("engine", "gateway") if name in words]
            if names:
                found[names[0]] = process.memory_info().rss / 2**20
    return found


async def not_idle(url: str) -> list[str]:
    """Return the gauges that are not back to zero ten seconds after the last request."""
    lines: list[str] = []
    async with aiohttp.ClientSession() as session:
        for _ in range(20):
            async with session.get(f"{url}/metrics") as response:
                text = await response.text()
            lines = [
                line
                for line in re.findall(rf"^{NAMES}\{{.*$", text, re.M)
                if float(line.rsplit(" ", 1)[1]) != 0
            ]
            if not lines:
                break
            await asyncio.sleep(0.5)
    return lines


def grown(samples: list[float]) -> float:
    """Return the growth of the last fifth over the third, as a share."""
    fifth = max(1, len(samples) // 5)
    return mean(samples[-fifth:]) / mean(samples[2 * fifth : 3 * fifth]) - 1


def tenths(samples: list[float]) -> list[int]:
    """Return the mean of each tenth of the run."""
    size = max(1, len(samples) // 10)
    return [round(mean(samples[i : i + size])) for i in range(0, len(samples), size)][:10]


async def soak(minutes: float, callers: int, num_kv_blocks: int) -> dict[str, Any]:
    """Run the load and return what was seen."""
    loop = asyncio.get_running_loop()
    samples: dict[str, list[float]] = {}
    seen: Counter[str] = Counter()
    async with Stack("qos", settings={"engine.num_kv_blocks": num_kv_blocks}) as stack:
        await fill_history(stack.url)
        until = loop.time() + 60 * minutes
        tasks = [
            asyncio.create_task(caller(stack.url, seed, until, seen)) for seed in range(callers)
        ]
        root = psutil.Process()
        while loop.time() < until:
            await asyncio.sleep(2)
            for name, mib in memory_mib(root).items():
                samples.setdefault(name, []).append(mib)
        await asyncio.gather(*tasks)
        busy = await not_idle(stack.url)
    return {
        "minutes": minutes,
        "callers": callers,
        "requests": dict(seen),
        "memory_mib": {name: [round(s[0]), round(s[-1])] for name, s in samples.items()},
        "memory_by_tenth_mib": {name: tenths(s) for name, s in samples.items()},
        "growth": {name: round(grown(s), 4) for name, s in samples.items()},
        "not_idle": busy,
    }


def main() -> None:
    """Run it, print the figures, and end with 1 when something leaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--callers", type=int, default=24)
    # Small, so that all of the pool's memory is touched early and does not look like growth.
    parser.add_argument("--num-kv-blocks", type=int, default=1024)
    arguments = parser.parse_args()
    result = asyncio.run(soak(arguments.minutes, arguments.callers, arguments.num_kv_blocks))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    leaks = bool(result["not_idle"]) or any(g > GROWTH for g in result["growth"].values())
    sys.exit(1 if leaks else 0)


if __name__ == "__main__":
    main()
