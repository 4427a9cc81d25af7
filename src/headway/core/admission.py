"""May it join the queue, and who is shed for it?

The shed order. Whoever stands further down is shed only when nobody further up could give the room:

1. *doomed*: what its tier's time limit would end before it is served, whoever it is;
2. *lower tiers*, the least urgent first, while the gateway as a whole is full: the newest request
   of the tenant with the largest share. So bulk goes first, and nothing goes for the sake of bulk;
3. *over-share tenants* of the own tier, when that tier or the gateway is full: their newest;
4. *by level*: in an overloaded tier, what tenants send who hold their share of it (`shedding.py`);
5. the arrival itself. For critical that means: its own bound is full, or nothing else waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headway.core.backlog import MAX_EVICTIONS, Backlog, QueuedRequest
from headway.core.need import NOTHING, Amount
from headway.core.outcome import Outcome
from headway.core.wait import WaitEstimate

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 120.0
"""OpenAI's SDKs do not wait longer than this."""
UNKNOWN_RETRY_AFTER_S = 5.0
"""While no drain rate has been measured: neither at once nor never."""


class ShedReason(StrEnum):
    """Why an arrival does not join the queue."""

    DOOMED = "it would wait longer than its time limit"
    LEVEL = "its tier is overloaded and its tenant holds a full share of the queue"
    FULL = "the queue is full and nobody less entitled gives way"


class Admit(NamedTuple):
    """It joins the queue. Each of `evicted` has left it: end those as EVICTED_SATURATED."""

    evicted: tuple[str, ...] = ()
    wait: WaitEstimate | None = None
    """How long it will wait, as was known at its arrival; None: unknown."""


@dataclass(frozen=True, slots=True)
class Shed:
    """It does not join the queue."""

    outcome: Outcome
    retry_after_s: float
    reason: ShedReason


class Arrival(NamedTuple):
    """A request at the door, and what it meets there."""

    entry: QueuedRequest
    wait: WaitEstimate | None
    """None: unknown."""
    expires_at: float | None
    """When it would leave the queue unserved."""
    time_limited: bool
    """Whether its tier limits the time in the queue; one without is never called doomed."""
    over_level: bool
    """Whether its tier turns its tenant away at present."""
    own: Backlog
    below: Sequence[Backlog] = ()
    """The less urgent tiers, the least urgent first."""
    excess: Amount = NOTHING
    """What has to leave so that the gateway as a whole can hold it."""


def retry_after_s(wait: WaitEstimate | None) -> float:
    """Return when to try again: the p90 of the wait, from 1 to 120 s; the shell adds jitter."""
    if wait is None:
        return UNKNOWN_RETRY_AFTER_S
    return min(max(wait.p90_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)


def admit(arrival: Arrival, now: float, *, again: bool = False) -> Admit | Shed:
    """Decide by the shed order, changing nothing.

    What comes `again` was accepted once: only a time limit that has passed refuses it.

    1. Shed as doomed when its time limit has passed, or half of such requests would miss it.
    2. Admit without eviction exactly when the bounds have room and no level forbids it.
    3. Evicted are only requests of less urgent tiers, or of tenants of the own tier whose share
       exceeds the arrival's tenant's, it included.
    """
    wait = None if again or not arrival.time_limited else arrival.wait
    wait_s = 0.0 if wait is None else wait.p50_s
    if arrival.expires_at is not None and now + wait_s >= arrival.expires_at:
        return _shed(arrival, ShedReason.DOOMED)
    if again:
        return Admit((), arrival.wait)
    room = _find_room(arrival)
    if room is None:
        return _shed(arrival, ShedReason.FULL)
    if arrival.over_level:
        return _shed(arrival, ShedReason.LEVEL)
    from_own, needed_below = room
    evicted: list[QueuedRequest] = []
    for backlog in arrival.below:
        evicted += backlog.newest(_without(needed_below, evicted))
    evicted += from_own
    return Admit(tuple([entry.request_id for entry in evicted]), arrival.wait)


def _find_room(arrival: Arrival) -> tuple[list[QueuedRequest], Amount] | None:
    """Return whom of the own tier to evict, and how much less urgent tiers give; None: too few.

    Those do give it, so each that is looked at leaves, and a refusal looks at none of them.
    """
    entry, own, excess = arrival.entry, arrival.own, arrival.excess
    needed = own.shortage(entry)
    if needed is excess is NOTHING:
        return [], NOTHING
    from_own = own.give_way(entry, needed, MAX_EVICTIONS)
    needed_below = _without(excess, from_own)
    held = Amount(
        sum([each.requests for each in arrival.below]), sum([each.tokens for each in arrival.below])
    )
    if needed_below.beyond(held):
        needed_below = held
        needed = needed.or_more(excess.beyond(held))
        from_own = own.give_way(entry, needed, MAX_EVICTIONS)
    return None if _without(needed, from_own) else (from_own, needed_below)


def _without(need: Amount, *leaving: list[QueuedRequest]) -> Amount:
    return need.less(entry.tokens for entries in leaving for entry in entries)


def _shed(arrival: Arrival, reason: ShedReason) -> Shed:
    return Shed(Outcome.REJECTED_SATURATED, retry_after_s(arrival.wait), reason)
