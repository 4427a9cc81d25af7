"""Which blocks and slots may a sequence take in this step?

Arithmetic on numbers taken before the step. Where two candidates match the same blocks, both count
them as used up: what is planned can always be done.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property

from headway.core.protection import Protection, target
from headway.core.reserve import kept_free
from headway.core.step import Candidate, Match, Resident, StepInput, StepLimits


class Room:
    """Blocks and slots left while a step is planned.

    Every resident is promised the blocks of its known tokens, a protected one those of all it may
    ever hold. Admissions leave all promises alone, growth those of protected residents.
    """

    def __init__(
        self, step: StepInput, limits: StepLimits, by_rank: Sequence[Sequence[Resident]]
    ) -> None:
        self._memory, self._demand = step.memory, step.demand
        self._tiers, self._max_num_seqs = limits.tiers, limits.max_num_seqs
        self._watermark = limits.watermark_blocks
        self.promised = step.memory.lacking(step.residents)
        """Blocks still to take, by sequence, of those that may have to take any."""
        self._num_promised = sum(self.promised.values())
        self._protection = Protection(step.memory, limits.max_num_seqs, step.residents)
        self._slots = limits.max_num_seqs - len(step.residents)
        self._by_rank = by_rank
        self._residents = [len(residents) for residents in by_rank]
        self._used = 0
        self._taken: Counter[str] = Counter()
        self._pinned: set[int] = set()
        self._preempted: list[str] = []

    @cached_property
    def _urgent_blocks(self) -> int:
        """Blocks of the known tokens of rank 0, those admitted in this step included."""
        return sum(self._blocks(target(r)) for r in self._by_rank[0])

    @cached_property
    def _unused_blocks(self) -> list[int]:
        """By rank, what is not used yet of the blocks that are reserved."""
        unused, size = [tier.reserved_blocks for tier in self._tiers], self._memory.block_size
        for rank, residents in enumerate(self._by_rank):
            for resident in residents:
                if unused[rank] <= 0:
                    break
                unused[rank] -= -(-resident.num_computed // size)
        return unused

    def _blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._memory.block_size)

    # -- residents ------------------------------------------------------------------------------

    def to_grow(self, resident: Resident, num_tokens: int) -> int:
        """Return the blocks to take, beyond those taken in this step, to hold `num_tokens`."""
        rest = self._blocks(target(resident)) - self._blocks(num_tokens)
        return max(0, self.promised.get(resident.sequence_id, 0) - rest)

    def shortage_to_grow(self, resident: Resident, blocks: int) -> int:
        """Return how many blocks are lacking to take `blocks`; 0 or less: none."""
        kept = self._protection.kept_from(resident, self.promised)
        return blocks - (self._available() - kept)

    def grow(self, resident: Resident, blocks: int) -> None:
        """Take blocks, first of those that are promised."""
        promised = self.promised.get(resident.sequence_id, 0)
        self._used += blocks
        self._num_promised -= min(blocks, promised)
        self.promised[resident.sequence_id] = max(0, promised - blocks)
        self._taken[resident.sequence_id] += blocks

    def gain(
        self, victims: Collection[str], requester: Resident | Candidate, pins: Collection[int] = ()
    ) -> int:
        """Return by how many blocks preempting these residents shrinks the requester's shortage.

        For an admission, which leaves promises alone, also by what they were promised.
        """
        gain = self._available(victims, pins) - self._available((), pins)
        gain += sum(self._taken[victim] for victim in victims)
        if isinstance(requester, Candidate):
            gain += sum(self.promised.get(victim, 0) for victim in victims)
        return gain

    def _available(self, victims: Collection[str] = (), pins: Collection[int] = ()) -> int:
        """Return the blocks that can be taken now, or could if these were preempted and pinned."""
        leaving = (*self._preempted, *victims)
        freed = self._memory.releasable(leaving, self._pinned.union(pins)) if leaving else 0
        return self._memory.num_available - self._used + freed

    def preempt(self, victim: Resident) -> None:
        """Take back all that a resident holds and was planned to take."""
        self._preempted.append(victim.sequence_id)
        self._used -= self._taken.pop(victim.sequence_id, 0)
        self._num_promised -= self.promised.pop(victim.sequence_id, 0)
        self._protection.drop(victim.sequence_id)
        self._slots += 1
        self._residents[victim.rank] -= 1
        if victim.rank == 0:
            self._urgent_blocks -= self._blocks(target(victim))

    def is_large(self, sequence: Resident | Candidate) -> bool:
        """Return whether rank 0 may take its blocks even when it is protected."""
        return self._protection.is_large(sequence)

    # -- admissions -----------------------------------------------------------------------------

    def lacking_slots(self, rank: int) -> int:
        """Return how many must give up slots to admit one of this tier and keep those reserved."""
        above = zip(self._tiers[:rank], self._residents, strict=False)
        unused = [tier.reserved_slots - num_residents for tier, num_residents in above]
        kept = kept_free(unused, None if self._demand is None else self._demand[0])
        return max(0, kept + 1 - self._slots)

    def may_protect(self, candidate: Candidate) -> bool:
        """Return whether one preempted as often as allowed may be let in.

        A large one, which gives way to rank 0, waits until that leaves it room beside its reserve.
        """
        is_large = candidate.rank > 0 and any(self._residents) and self.is_large(candidate)
        beside = self._residents[0], self._urgent_blocks + self._tiers[0].reserved_blocks
        fits = not is_large or self._fits_beside(candidate, *beside)
        return fits and self._protection.may_enter(candidate)

    def shortage_to_admit(self, candidate: Candidate, match: Match) -> int:
        """Return how many blocks are lacking to admit; 0 or less: none."""
        kept = self._num_promised + self._reserve(candidate)
        kept += self._kept_beside(candidate, sum(self._residents))
        blocks = self._to_admit(match, target(candidate))
        return blocks - (self._available(pins=match.blocks) - kept)

    def _kept_beside(self, candidate: Candidate, num_residents: int) -> int:
        """Return the blocks that an admission beside so many residents leaves them.

        One that was preempted leaves each room for a block, so that it does not give way to their
        growth at once.
        """
        kept = self._watermark if num_residents > 0 else 0
        rests = candidate.was_preempted and not candidate.protected
        return kept + num_residents if rests else kept

    def leaves_room(self, candidate: Candidate, overdue: Candidate) -> bool:
        """Return whether `overdue` fits beside rank 0 once all others have left.

        This candidate of rank 0 included. To who is large it leaves no blocks.
        """
        slots = max(self._residents[0] + 1, self._tiers[0].reserved_slots)
        slots += sum(tier.reserved_slots for tier in self._tiers[1 : overdue.rank]) + 1
        beside = self._residents[0] + 1, self._urgent_blocks + self._blocks(target(candidate))
        fits = self.is_large(overdue) or self._fits_beside(overdue, *beside)
        return fits and slots <= self._max_num_seqs

    def could_fit(self, candidate: Candidate) -> bool:
        """Return whether it fits once all have left who will; else it would hold others in vain.

        That is beside one of rank 0 and its reserve; who is large beside all that rank 0 holds.
        """
        beside = (self._residents[0], self._urgent_blocks) if self.is_large(candidate) else (1, 0)
        return candidate.rank == 0 or self._fits_beside(candidate, *beside)

    def _fits_beside(self, candidate: Candidate, num_urgent: int, blocks: int) -> bool:
        """Return whether the candidate fits beside so many of rank 0 with so many blocks."""
        taken = max(blocks, self._tiers[0].reserved_blocks) + self._blocks(target(candidate))
        taken += sum(tier.reserved_blocks for tier in self._tiers[1 : candidate.rank])
        return taken + self._kept_beside(candidate, num_urgent) <= self._memory.num_blocks

    def _to_admit(self, match: Match, num_tokens: int) -> int:
        """Return how many available blocks a candidate uses up by holding `num_tokens`."""
        num_matched = match.num_tokens // self._memory.block_size
        return self._blocks(num_tokens) - num_matched + match.num_evictable

    def _reserve(self, candidate: Candidate) -> int:
        if not any(self._residents):
            return 0
        unused = self._unused_blocks[: candidate.rank]
        return kept_free(unused, None if self._demand is None else self._demand[1])

    def admit(self, candidate: Candidate, match: Match, num_tokens: int) -> None:
        """Take a slot and the blocks of `num_tokens`, and promise the rest."""
        rest = self._blocks(target(candidate)) - self._blocks(num_tokens)
        self._used += self._to_admit(match, num_tokens)
        self._pinned.update(match.blocks)
        self.promised[candidate.sequence_id] = rest
        self._num_promised += rest
        self._slots -= 1
        self._residents[candidate.rank] += 1
        self._protection.hold(candidate)
        if candidate.rank == 0:
            self._urgent_blocks += self._blocks(target(candidate))
