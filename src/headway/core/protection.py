"""What may those keep who were preempted as often as allowed?

They are protected: nobody takes what they hold or may still need. The first may be of any size,
several share a part of the engine; one so *large* that little is left gives its blocks to rank 0.
"""

from collections.abc import Iterable, Mapping

from headway.core.step import Candidate, Memory, Resident

PROTECTED_SHARE = 0.25
"""Of all slots and blocks, what several protected ones hold together."""
LARGE_SHARE = 0.5
"""Of all blocks, the most that rank 0 has to do without for one request of a lower tier."""


class Protection:
    """The protected residents of one step, by the blocks that each may ever hold."""

    def __init__(self, memory: Memory, max_num_seqs: int, residents: Iterable[Resident]) -> None:
        self._block_size = memory.block_size
        self._most_blocks = PROTECTED_SHARE * memory.num_blocks
        self._not_large = LARGE_SHARE * memory.num_blocks
        self._most_seqs = PROTECTED_SHARE * max_num_seqs
        protected = (r for r in residents if r.protected)
        self._held = {r.sequence_id: self._blocks(r.max_num_tokens) for r in protected}
        self._refuses = False

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    def is_large(self, sequence: Resident | Candidate) -> bool:
        """Return whether it is promised more blocks than rank 0 does without."""
        return self._blocks(target(sequence)) > self._not_large

    def hold(self, candidate: Candidate) -> None:
        """Count one that is let in, if it is protected."""
        if candidate.protected:
            self._held[candidate.sequence_id] = self._blocks(candidate.max_num_tokens)

    def drop(self, sequence_id: str) -> None:
        """Forget a resident, if it is protected."""
        self._held.pop(sequence_id, None)

    def may_enter(self, candidate: Candidate) -> bool:
        """Return whether one more may be let in: the first, then a share.

        Once one is refused, none behind it is let in, or the large would never be the first.
        """
        num_blocks = sum(self._held.values()) + self._blocks(candidate.max_num_tokens)
        fits = len(self._held) + 1 <= self._most_seqs and num_blocks <= self._most_blocks
        self._refuses |= bool(self._held) and not fits
        return not self._refuses

    def kept_from(self, resident: Resident, promised: Mapping[str, int]) -> int:
        """Return how many of the promised blocks a resident that grows has to leave alone."""
        return sum(
            promised.get(sequence_id, 0)
            for sequence_id, num_blocks in self._held.items()
            if sequence_id != resident.sequence_id
            and (resident.rank > 0 or num_blocks <= self._not_large)
        )


def target(sequence: Resident | Candidate) -> int:
    """Return the tokens whose blocks a sequence is promised."""
    return sequence.max_num_tokens if sequence.protected else sequence.num_tokens
