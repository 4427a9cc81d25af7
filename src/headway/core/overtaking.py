"""Who does not fit, was overtaken as often as allowed, and so holds up those behind it?"""

from collections import Counter
from collections.abc import Collection, Sequence

from headway.core.step import Candidate, StepLimits, Wait


class Overtaking:
    """The candidates that one step has no room for, and how often others are admitted past them."""

    def __init__(self, limits: StepLimits, owed: Collection[int]) -> None:
        self.counts: Counter[str] = Counter()
        """By sequence id, how often it was overtaken in this step."""
        self.held_from = len(limits.tiers)
        """The most urgent rank of which nobody more is admitted."""
        self.admitted = [0] * len(limits.tiers)
        """By rank, how many were admitted."""
        self._most = limits.max_overtakes
        self._owed = owed
        self._blocked: dict[str, Candidate] = {}

    def is_exhausted(self, candidate: Candidate) -> bool:
        """Return whether it was overtaken as often as allowed."""
        return candidate.overtaken + self.counts[candidate.sequence_id] >= self._most

    def hold_for_exhausted(self) -> Sequence[Candidate]:
        """Admit nobody any more who would be in the way of the exhausted; return those."""
        exhausted = [c for c in self._blocked.values() if self.is_exhausted(c)]
        self.held_from = min(1, *(c.rank for c in exhausted))
        return exhausted

    def note_admitted(self, rank: int) -> None:
        """Count an admission: it overtakes those of its tier and above that do not fit."""
        self.admitted[rank] += 1
        for ahead in self._blocked.values():
            if ahead.rank <= rank:
                self._count(ahead, 1)

    def note_blocked(self, candidate: Candidate, wait: Wait) -> None:
        """Remember who does not fit. While a tier is owed, more urgent ones overtake it too."""
        if wait in (Wait.TOKENS, Wait.HELD) or candidate.sequence_id in self._blocked:
            return
        self._blocked[candidate.sequence_id] = candidate
        more_urgent = sum(self.admitted[: candidate.rank]) if candidate.rank in self._owed else 0
        self._count(candidate, more_urgent)

    def _count(self, candidate: Candidate, times: int) -> None:
        self.counts[candidate.sequence_id] += times
        if self.is_exhausted(candidate):
            self.held_from = min(self.held_from, candidate.rank)
