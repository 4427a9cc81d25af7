"""Which servers does a measurement compare when none is named?"""

import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headway.bench.client import Server
from headway.bench.isolation import ALL_PHASES, FLOOD, Run
from headway.bench.stack import Stack
from headway.cli.lifeline import dies_with_parent

BASELINE = "fcfs"
"""First come first served."""
OURS = "headway"


def own_runs(settings: Mapping[str, object], *, only_flood: bool = False) -> list[Run]:
    """Return our own stack in arrival order, as the baseline, and by tier."""
    return [
        Run(label=BASELINE, phases=(FLOOD,), open=_opener("fcfs", settings)),
        Run(
            label=OURS,
            phases=(FLOOD,) if only_flood else ALL_PHASES,
            open=_opener("qos", settings),
        ),
    ]


def _opener(
    policy: str, settings: Mapping[str, object]
) -> Callable[[], AbstractAsyncContextManager[Server]]:
    @asynccontextmanager
    async def start() -> AsyncIterator[Server]:
        # SIGTERM, so that the stack's supervisor still stops its own children in order.
        lifeline = dies_with_parent(signal.SIGTERM)
        async with Stack(policy, settings=settings, preexec_fn=lifeline) as stack:
            yield Server(base_url=stack.url)

    return start
