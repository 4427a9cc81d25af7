"""Whose turn is it among the residents of a tier?"""

from collections.abc import Iterable
from operator import attrgetter

from headway.core.step import Resident


def by_turn(
    residents: Iterable[Resident], num_ranks: int
) -> tuple[list[list[Resident]], list[list[Resident]]]:
    """Return, by rank, those that decode and those that prefill: parked longest first, then oldest.

    Nobody is the fixed favourite where there is not room for all.
    """
    decodes: list[list[Resident]] = [[] for _ in range(num_ranks)]
    prefills: list[list[Resident]] = [[] for _ in range(num_ranks)]
    # Two sorts, each by one number, take half the time of one by both.
    ordered = sorted(residents, key=attrgetter("arrival"))
    ordered.sort(key=attrgetter("last_step"))
    for resident in ordered:
        is_decode = resident.num_tokens - resident.num_computed == 1
        (decodes if is_decode else prefills)[resident.rank].append(resident)
    return decodes, prefills
