"""How many more requests of each tier may be sent to one node?

A node takes `limit` requests. Lower tiers leave the reserves of higher tiers free, so that a more
urgent request finds a slot without waiting for anybody; what a higher tier already uses counts as
its reserve. The most urgent tier may use every slot, and a little more at a node that preempts for
slots, because there it takes the place of somebody less urgent instead of waiting.
"""

from collections.abc import Sequence
from math import ceil, floor

from headway.core.tier import Tiers

SLOTS_PER_FLOOR = 2.0
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


def floor_slots(limit: int, tiers: Tiers, *, preempts: bool, policy: str) -> tuple[int, ...]:
    """Return, for each rank, how many requests its floor keeps at a node that `preempts`.

    They are there whatever others send, so that the engine always has of each tier whom to pay its
    floor: twice the floor's share of the slots, for a slot in decode is served less than one that
    prefills. Together they leave one slot, without which the most urgent tier would never come to
    a node where the others ask for all that is kept for them; large floors share what is left, one
    for each as far as that goes. At a node that does not plan by tier they would only queue.
    """
    floors = [tier.floor for tier in tiers.all]
    if policy == "fcfs" or not preempts or not any(floors):
        return (0,) * len(tiers)
    most = limit - 1
    slots = min(SLOTS_PER_FLOOR * limit, most / sum(floors))
    wanted = [slots * share for share in floors]
    kept = [floor(each) for each in wanted]
    ranks = range(len(kept))
    for rank in sorted(ranks, key=lambda rank: (kept[rank] > 0, kept[rank] - wanted[rank])):
        if kept[rank] < wanted[rank] and sum(kept) < most:
            kept[rank] += 1
    return tuple(kept)


def free_credits(
    limit: int, ceilings: Sequence[int], inflight: Sequence[int], kept: Sequence[int]
) -> list[int]:
    """Return, for each rank, how many more requests may be sent to the node now; never negative.

    `inflight` counts the requests of each rank at the node. A request of rank r fits when it
    breaks no ceiling of r or above. At a node that preempts it may do so by the overcommit, as far
    as less urgent requests there can give way: those beyond what floors keep. It fits, too, while
    its own tier has less there than its floor keeps (`kept`, from `floor_slots`).
    """
    overcommit = ceilings[0] - limit if ceilings[0] > limit else 0
    free: list[int] = []
    room = limit + overcommit
    lower = sum(inflight)
    yielding = lower - sum(kept)
    tightest = limit - lower
    # Compared by hand: `min` and `max` would take two thirds of the time, twice for each request.
    for own, ceiling, own_kept in zip(inflight, ceilings, kept, strict=True):
        if ceiling - lower < tightest:
            tightest = ceiling - lower
        lacking = own_kept - own
        lower -= own
        yielding += lacking
        extra = overcommit if yielding > overcommit else yielding if yielding > 0 else 0
        if tightest + extra < room:
            room = tightest + extra
        most = room if room > lacking else lacking
        free.append(most if most > 0 else 0)
    return free
