"""What load shows an engine in all its moods?

Few and many callers at once, short and long prompts and answers: what a step costs can only be told
apart where its parts vary on their own.
"""

import asyncio
from math import exp, log
from random import Random

from headway.bench.client import BenchClient, Server, calibrate
from headway.bench.prompts import PromptSource
from headway.bench.records import RequestRecord
from headway.clock import Clock
from headway.errors import NodeError

CALLERS = (1, 4, 12, 24, 48)
PROMPT_TOKENS = (16, 1200)
OUTPUT_TOKENS = (4, 160)
TIER = "bulk"
"""No latency target bounds its steps, so that they reach their full size."""


async def run_mixed_load(server: Server, duration_s: float, clock: Clock, seed: int = 0) -> int:
    """Offer the load, each number of callers for as long; return how many were answered.

    Raises NodeError when a request fails.
    """
    random = Random(seed)
    prompts = PromptSource(random)
    async with BenchClient(server) as client:
        await calibrate(client, prompts, TIER)
        answered = 0
        for callers in CALLERS:
            until = clock.now() + duration_s / len(CALLERS)
            counts = await asyncio.gather(
                *(_caller(client, prompts, random, clock, until) for _ in range(callers))
            )
            answered += sum(counts)
    return answered


async def _caller(
    client: BenchClient, prompts: PromptSource, random: Random, clock: Clock, until: float
) -> int:
    answered = 0
    while clock.now() < until:
        record = RequestRecord(tier=TIER, sent_s=clock.now())
        prompt = prompts.text(_between(random, *PROMPT_TOKENS))
        await client.send(record, prompt, _between(random, *OUTPUT_TOKENS), clock.now)
        if record.error is not None:
            raise NodeError(f"a request failed: {record.error}")
        answered += 1
    return answered


def _between(random: Random, low: int, high: int) -> int:
    """Return a whole number, each order of magnitude as likely."""
    return round(low * exp(random.random() * log(high / low)))
