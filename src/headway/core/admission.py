"""May it join the queue?

In this order: it would miss its time limit anyway (doomed) → shed; there is room → admit; somebody
holds more than a fair share of the full queue → admit, and evict that tenant's newest; else → shed.
"""

from dataclasses import dataclass

from headway.core.backlog import Backlog, QueuedRequest
from headway.core.outcome import Outcome

MIN_RETRY_AFTER_S = 1.0
MAX_RETRY_AFTER_S = 120.0
"""OpenAI's SDKs do not wait longer than this."""
UNKNOWN_RETRY_AFTER_S = 5.0
"""While no drain rate has been measured: neither at once nor never."""


@dataclass(frozen=True, slots=True)
class Admit:
    """It joins the queue. Each of `evicted` has left it: end those as EVICTED_SATURATED."""

    evicted: tuple[str, ...] = ()
    evicted_retry_after_s: float = MIN_RETRY_AFTER_S


@dataclass(frozen=True, slots=True)
class Shed:
    """It does not join the queue."""

    outcome: Outcome
    retry_after_s: float


def predict_wait_s(
    ahead_cost: float, above_cost: float, floor: float, rate: float | None
) -> float | None:
    """Return the predicted seconds in the queue, or None while `rate` (cost/s) is unknown.

    Strict priority: the more urgent tiers' backlog (`above_cost`) and what is ahead in the own tier
    have to be served; but the own tier's floor alone serves what is ahead there, too.
    """
    if rate is None or rate <= 0:
        return None
    wait_s = (above_cost + ahead_cost) / rate
    return wait_s if floor <= 0 else min(wait_s, ahead_cost / floor / rate)


def cost_ahead(entry: QueuedRequest, backlog: Backlog, queued_cost: float) -> float:
    """Return the cost served before `entry` in its tier, at most; O(1).

    Its own tenant's backlog is served at the tenant's share of the tier, and never more than all
    that waits in the tier is ahead.
    """
    if backlog.tenant_cost(entry.tenant) <= 0:
        return 0.0
    own_share = entry.weight / backlog.total_weight
    return min(queued_cost, backlog.tenant_cost(entry.tenant) / own_share)


def retry_after_s(wait_s: float | None) -> float:
    """Return when to try again: the predicted wait, from 1 to 120 s."""
    if wait_s is None:
        return UNKNOWN_RETRY_AFTER_S
    return min(max(wait_s, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)


def admit(
    entry: QueuedRequest,
    backlog: Backlog,
    wait_s: float | None,
    expires_at: float | None,
    now: float,
) -> Admit | Shed:
    """Decide, changing nothing. `expires_at`: when `entry` would leave the queue unserved.

    1. Shed when `expires_at` has passed, or would before the predicted wait is over.
    2. Admit without eviction exactly when the bounds have room.
    3. Evicted are only requests of tenants whose share exceeds the arrival's tenant's, it included.
    4. `retry_after_s` is within [1, 120] and does not fall when the backlog ahead grows.
    """
    retry_s = retry_after_s(wait_s)
    if expires_at is not None and now + (0.0 if wait_s is None else wait_s) >= expires_at:
        return Shed(Outcome.REJECTED_SATURATED, retry_s)
    evicted = backlog.make_room(entry)
    if evicted is None:
        return Shed(Outcome.REJECTED_SATURATED, retry_s)
    return Admit(evicted, retry_s)
