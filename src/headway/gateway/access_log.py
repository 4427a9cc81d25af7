"""What is kept of a request that has ended, and what does the log say of it?

One line of JSON per request, at its one outcome, under the logger `headway.access`. No prompt, no
answer and no key is ever in it.
"""

import logging

import msgspec
from msgspec import Struct

_log = logging.getLogger("headway.access")
_encode = msgspec.json.Encoder().encode


class Record(Struct, frozen=True, kw_only=True):
    """One request. Times in milliseconds from its arrival; None: it did not come to that."""

    id: str
    client_id: str
    path: str
    tenant: str | None
    model: str | None
    stream: bool
    asked_tier: str | None
    used_tier: str | None
    queue_ms: float
    wait_p90_ms: float | None
    """Time in the queue predicted at its arrival: nine in ten such requests wait no longer."""
    promoted: bool
    """Whether it was served in a tier above its own, to meet its deadline."""
    node: str | None
    attempts: int
    """How often a node was asked."""
    ttft_ms: float | None
    e2e_ms: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: bool
    """Whether the token counts are ours, because the node told none."""
    outcome: str
    detail: str | None
    """What went wrong, in words."""


def log_record(record: Record) -> None:
    """Write the line."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s", _encode(record).decode())
