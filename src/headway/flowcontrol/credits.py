"""How many more requests of each tier may be sent to one node?

A node takes `limit` requests. Lower tiers leave the reserves of higher tiers free, so that a more
urgent request finds a slot without waiting for anybody; what a higher tier already uses counts as
its reserve. The most urgent tier may use every slot, and a little more at a node that preempts for
slots, because there it takes the place of somebody less urgent instead of waiting.
"""

from collections.abc import Sequence
from math import ceil, floor

from headway.core.tier import Tiers

OVERCOMMIT = 0.1
"""Share of the slots that the most urgent tier may send on top to a node that preempts."""


def known_slots(configured: int | None, reported: int | None) -> int | None:
    """Return the most requests a node is meant to have: the less of what is said; None: unsaid."""
    told = [slots for slots in (configured, reported) if slots is not None]
    return max(1, min(told)) if told else None


def tier_ceilings(limit: int, tiers: Tiers, *, preempts: bool, policy: str) -> tuple[int, ...]:
    """Return, for each rank, the most requests of that rank and below in flight at one node.

    Rank 0 has `limit`, plus the overcommit when the node `preempts`. First come, first served has
    no reserves. Every tier may have at least one request in flight.
    """
    if policy == "fcfs":
        return (limit,) * len(tiers)
    ceilings = [limit + (max(1, ceil(limit * OVERCOMMIT)) if preempts else 0)]
    reserved = 0.0
    for above in tiers.all[:-1]:
        reserved += above.reserve
        ceilings.append(max(1, limit - floor(reserved * limit + 0.5)))
    return tuple(ceilings)


def free_credits(limit: int, ceilings: Sequence[int], inflight: Sequence[int]) -> list[int]:
    """Return, for each rank, how many more requests may be sent to the node now; never negative.

    `inflight` counts the requests of each rank at the node. A request of rank r fits when it
    breaks no ceiling of r or above, and, below rank 0, when the node has a slot that is free.
    """
    below = sum(inflight)
    # Overcommitting helps only where somebody less urgent can give way; beyond that it would fill
    # the node with rank 0 for good, and no floor could be paid.
    most = min(ceilings[0], limit + below - inflight[0])
    free = [max(0, most - below)]
    room = limit - below
    for rank in range(1, len(ceilings)):
        below -= inflight[rank - 1]
        room = min(room, ceilings[rank] - below)
        free.append(max(0, room))
    return free
