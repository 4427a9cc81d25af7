"""What does a measurement say while it runs?"""

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from headway.bench.load import Phase


def tell(label: str, name: str, phase: Phase) -> AbstractAsyncContextManager[None]:
    """Say on stderr which phase runs."""

    @asynccontextmanager
    async def told() -> AsyncIterator[None]:
        sys.stderr.write(f"{label}: {name}, {phase.load.duration_s:g} s ...\n")
        yield
        failed = [record.error for record in phase.records if record.error is not None]
        if failed:
            sys.stderr.write(f"{label}: {len(failed)} requests failed, as: {failed[0]}\n")

    return told()
