"""Which blocks and slots may a sequence take in this step?

Arithmetic on numbers taken before the step. Where a preemption makes one uncertain, the cautious
one is used, so that what is planned can always be done.
"""

from collections.abc import Iterable

from headway.core.step import Candidate, Match, Memory, Resident, TierLimits


class Room:
    """Blocks and slots left while a step is planned.

    Every resident is promised the blocks of its known tokens, a protected one those of all it may
    ever hold. Admissions leave all promises alone, growth those of protected residents.
    """

    def __init__(
        self,
        memory: Memory,
        residents: Iterable[Resident],
        tiers: tuple[TierLimits, ...],
        max_num_seqs: int,
    ) -> None:
        self._memory = memory
        self._tiers = tiers
        self._available = memory.num_available
        self._promised: dict[str, int] = {}
        self._protected: dict[str, int] = {}
        self._taken: dict[str, int] = {}
        self._shared = 0
        self._preempted = False
        self._slots = max_num_seqs
        self._residents = [0] * len(tiers)
        self._blocks_used = [0] * len(tiers)
        for resident in residents:
            self._enter(resident)

    def _enter(self, resident: Resident) -> None:
        target = resident.max_num_tokens if resident.protected else resident.num_tokens
        blocks = self._memory.blocks_to_grow(resident.sequence_id, resident.num_computed, target)
        self._promise(resident.sequence_id, blocks, protected=resident.protected)
        self._slots -= 1
        self._residents[resident.rank] += 1
        self._blocks_used[resident.rank] += self._blocks(resident.num_computed)

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._memory.block_size)

    def _promise(self, sequence_id: str, blocks: int, *, protected: bool) -> None:
        self._promised[sequence_id] = blocks
        if protected:
            self._protected[sequence_id] = blocks

    # -- residents ------------------------------------------------------------------------------

    def to_grow(self, resident: Resident, num_tokens: int) -> int:
        """Return the blocks to take, beyond those taken in this step, to hold `num_tokens`."""
        blocks = self._memory.blocks_to_grow(
            resident.sequence_id, resident.num_computed, num_tokens
        )
        return blocks - self._taken.get(resident.sequence_id, 0)

    def shortage_to_grow(self, resident: Resident, blocks: int) -> int:
        """Return how many blocks are lacking to take `blocks`; 0 or less: none."""
        kept = sum(self._protected.values()) - self._protected.get(resident.sequence_id, 0)
        return blocks - (self._available - kept)

    def grow(self, resident: Resident, blocks: int) -> None:
        """Take the blocks."""
        sequence_id = resident.sequence_id
        self._available -= blocks
        self._taken[sequence_id] = self._taken.get(sequence_id, 0) + blocks
        self._promised[sequence_id] = max(0, self._promised[sequence_id] - blocks)
        if sequence_id in self._protected:
            self._protected[sequence_id] = max(0, self._protected[sequence_id] - blocks)

    def preempt(self, resident: Resident) -> None:
        """Take back all that the resident holds and was planned to take."""
        sequence_id = resident.sequence_id
        gained = self._memory.releasable(sequence_id) - self._shared
        self._available += max(0, gained) + self._taken.pop(sequence_id, 0)
        self._promised.pop(sequence_id)
        self._protected.pop(sequence_id, None)
        self._slots += 1
        self._residents[resident.rank] -= 1
        self._preempted = True

    def to_gain(self, shortage: int) -> int:
        """Return the releasable blocks that victims must have between them to end a shortage.

        An admission of this step may have matched blocks that a victim holds; those stay held.
        """
        return shortage + self._shared if shortage > 0 else 0

    def gain(self, resident: Resident, requester: Resident | Candidate) -> int:
        """Return by how much preempting the resident would reduce the requester's shortage.

        For an admission, which leaves promises alone, also by what the resident was promised.
        """
        sequence_id = resident.sequence_id
        gain = self._memory.releasable(sequence_id) + self._taken.get(sequence_id, 0)
        return gain + self._promised[sequence_id] if isinstance(requester, Candidate) else gain

    # -- admissions -----------------------------------------------------------------------------

    def slots_for(self, rank: int) -> int:
        """Return the slots that a candidate of this tier may use; those above keep theirs."""
        unused = sum(
            max(0, tier.reserved_slots - used)
            for tier, used in zip(self._tiers[:rank], self._residents[:rank], strict=True)
        )
        return self._slots - unused

    @property
    def is_protecting(self) -> bool:
        """Whether a protected sequence is resident; a second one waits for it."""
        return bool(self._protected)

    def _to_admit(self, match: Match, num_tokens: int, *, preempting: bool) -> int:
        """Return how many blocks are no longer available when a candidate holds `num_tokens`."""
        cached = match.num_tokens // self._memory.block_size
        pinned = match.num_evictable
        if preempting and match.parent_id is None:
            pinned = cached
        return self._blocks(num_tokens) - cached + pinned

    def shortage_to_admit(
        self, candidate: Candidate, match: Match, *, preempting: bool = False
    ) -> int:
        """Return how many blocks are lacking to admit; 0 or less: none.

        With `preempting`, matched blocks count as if victims were their only holders.
        """
        target = candidate.max_num_tokens if candidate.protected else candidate.num_tokens
        needed = self._to_admit(match, target, preempting=preempting or self._preempted)
        return needed - (self._available - sum(self._promised.values()) - self._reserve(candidate))

    def _reserve(self, candidate: Candidate) -> int:
        if not any(self._residents):
            return 0
        return sum(
            max(0, tier.reserved_blocks - used)
            for tier, used in zip(
                self._tiers[: candidate.rank], self._blocks_used[: candidate.rank], strict=True
            )
        )

    def admit(self, candidate: Candidate, match: Match, num_tokens: int) -> None:
        """Take a slot and the blocks of `num_tokens`, and promise the rest."""
        blocks = self._to_admit(match, num_tokens, preempting=self._preempted)
        target = candidate.max_num_tokens if candidate.protected else candidate.num_tokens
        rest = self._blocks(target) - self._blocks(num_tokens)
        self._available -= blocks
        self._promise(candidate.sequence_id, rest, protected=candidate.protected)
        self._slots -= 1
        self._residents[candidate.rank] += 1
        if match.parent_id is None:
            held = match.num_tokens // self._memory.block_size - match.num_evictable
            self._shared += max(0, held)
