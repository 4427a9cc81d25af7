"""Who of those in line may be planned for, when vLLM would refuse some?"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

from headway.core.step import Candidate
from headway.core.waiting_line import WaitingLine

MOST_LISTED = 64
"""Most of one tier that are asked about in one step, so that no plan is linear in the queue."""


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Candidates of one tier in their order: a `Waiting` of the core's planner."""

    candidates: tuple[Candidate, ...] = ()

    def __len__(self) -> int:
        """Return how many may be admitted."""
        return len(self.candidates)

    def in_order(self) -> Iterator[Candidate]:
        """Yield who is to be admitted next."""
        return iter(self.candidates)

    def without(self, barred: Collection[str]) -> "Shortlist":
        """Return the others."""
        return Shortlist(tuple(c for c in self.candidates if c.sequence_id not in barred))


def first_of(line: WaitingLine) -> Shortlist:
    """Return who is first in a line."""
    return Shortlist(tuple(islice(line.in_order(), MOST_LISTED)))
