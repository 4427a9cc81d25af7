"""How many tokens does a server process, alone and with many requests at once?"""

import asyncio
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from statistics import median

from headway.bench.client import BenchClient, Server, calibrate
from headway.bench.load import Shape
from headway.bench.prompts import PromptSource
from headway.bench.records import RequestRecord
from headway.clock import Clock
from headway.errors import NodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What was measured; medians over the rounds."""

    single_ms_per_token: float
    """One stream: mean time between tokens after the first."""
    single_ttft_s: float
    total_tokens_per_s: float
    """All at once: prompt and output tokens together."""
    output_tokens_per_s: float
    concurrency: int
    rounds: int


async def measure_speed(
    server: Server, shape: Shape, clock: Clock, *, concurrency: int = 32, rounds: int = 3
) -> Speed:
    """Send one request, then `concurrency` at once, `rounds` times, after one round unmeasured.

    Raises NodeError when a request fails: a figure over fewer requests would mean nothing.
    """
    prompts = PromptSource(Random())
    singles, batches = [], []
    async with BenchClient(server) as client:
        await calibrate(client, prompts, shape.tier)
        for index in range(rounds + 1):
            single = await _at_once(client, prompts, shape, clock, 1)
            batch = await _at_once(client, prompts, shape, clock, concurrency)
            if index > 0:
                singles.append(single.records[0])
                batches.append(batch)
    return Speed(
        single_ms_per_token=1000 * median(_token_time_s(record) for record in singles),
        single_ttft_s=median(record.chunk_s[0] - record.sent_s for record in singles),
        total_tokens_per_s=median(batch.total_tokens / batch.seconds for batch in batches),
        output_tokens_per_s=median(batch.output_tokens / batch.seconds for batch in batches),
        concurrency=concurrency,
        rounds=rounds,
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    records: list[RequestRecord]
    seconds: float

    @property
    def output_tokens(self) -> int:
        return sum(record.num_output_tokens for record in self.records)

    @property
    def total_tokens(self) -> int:
        return self.output_tokens + sum(record.num_prompt_tokens for record in self.records)


async def _at_once(
    client: BenchClient, prompts: PromptSource, shape: Shape, clock: Clock, count: int
) -> _Batch:
    start = clock.now()
    records = [RequestRecord(tier=shape.tier, sent_s=0.0) for _ in range(count)]
    await asyncio.gather(
        *(
            client.send(
                record,
                prompts.text(shape.num_prompt_tokens),
                shape.num_output_tokens,
                lambda: clock.now() - start,
            )
            for record in records
        )
    )
    seconds = clock.now() - start
    for record in records:
        if record.error is not None:
            raise NodeError(f"a request failed: {record.error}")
    return _Batch(records, seconds)


def _token_time_s(record: RequestRecord) -> float:
    gaps = sum(later - earlier for earlier, later in pairwise(record.chunk_s))
    return gaps / max(1, record.num_output_tokens - 1)
