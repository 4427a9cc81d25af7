"""Who gives way when slots or blocks run out?

Edges point only to a less urgent tier that allows it, or, for blocks and between residents, from an
older to a younger request of one tier; so they have no cycle. A protected request never gives way,
a large one only to rank 0, for blocks (`protection.py`).
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from math import ceil, log2
from typing import NamedTuple

from headway.core.step import Candidate, Resident, TierLimits

REST_S, MAX_REST_S = 0.2, 2.0
"""How long a request rests after its first preemption, and at most after later ones."""
LOOKED_AT = 16
"""Of those with the least work to lose, so many are asked whether they suffice alone."""


class Victim(NamedTuple):
    """A resident that may be preempted, with what that loses."""

    sequence_id: str
    rank: int
    arrival: int
    num_computed: int
    """Tokens of work lost, at most: what the prefix cache keeps is not lost."""


def may_preempt(
    requester: Resident | Candidate,
    victim: Resident,
    tiers: Sequence[TierLimits],
    *,
    is_large: bool = False,
) -> bool:
    """Whether `requester` may take the blocks of `victim`, and, if less urgent, its slot.

    1. Never one that a step under way writes, nor a protected one, unless it `is_large` and rank 0
    needs its blocks. 2. A less urgent one whose tier is preemptible. 3. Of the same tier only by a
    resident, and only a younger one: who waits does not push out an equal.
    """
    is_safe = victim.protected and not (is_large and requester.rank == 0 < victim.rank)
    if is_safe or victim.busy:
        return False
    if victim.rank != requester.rank:
        return victim.rank > requester.rank and tiers[victim.rank].preemptible
    return isinstance(requester, Resident) and victim.arrival > requester.arrival


def rest_s(num_preemptions: int, max_preemptions: int) -> float:
    """Return how long a request waits before it may be admitted again, after so many preemptions.

    Twice as long each time, so that it is not pushed out by each of a run of urgent requests; not
    at all after the one with which it becomes protected.
    """
    if num_preemptions == max_preemptions:
        return 0.0
    longest = ceil(log2(MAX_REST_S / REST_S))  # a large request is preempted any number of times
    return min(MAX_REST_S, REST_S * 2.0 ** min(num_preemptions - 1, longest))


def choose_victims(
    candidates: Iterable[Victim],
    blocks_gained: Callable[[Collection[str]], int],
    *,
    num_blocks: int,
    num_slots: int,
) -> tuple[str, ...] | None:
    """Return whom to preempt to gain `num_blocks` and `num_slots`, or None if all do not suffice.

    Least urgent tier first; in a tier, one that suffices alone if one of the first `LOOKED_AT`
    does, else the one with the least work to lose, then the youngest. Nobody is preempted in vain.
    `blocks_gained` tells what several gain together: with blocks that they share, that is more than
    the sum.
    """

    def preference(victim: Victim) -> tuple[int, bool]:
        insufficient = num_blocks > 0 and blocks_gained((victim.sequence_id,)) < num_blocks
        return -victim.rank, insufficient

    def suffice(sequence_ids: Collection[str]) -> bool:
        enough_slots = len(sequence_ids) >= num_slots
        return enough_slots and (num_blocks <= 0 or blocks_gained(sequence_ids) >= num_blocks)

    ordered = sorted(candidates, key=lambda v: (-v.rank, v.num_computed, -v.arrival))
    ordered[:LOOKED_AT] = sorted(ordered[:LOOKED_AT], key=preference)
    names = [victim.sequence_id for victim in ordered]
    if not suffice(names):
        return None
    # More never gain less, so how many it takes is found by halving.
    chosen = names[: bisect_left(range(len(names)), True, key=lambda n: suffice(names[:n]))]
    for sequence_id in reversed(chosen.copy()):
        rest = [other for other in chosen if other != sequence_id]
        chosen = rest if suffice(rest) else chosen
    return tuple(chosen)
