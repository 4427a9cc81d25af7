"""What does the planner learn about blocks and about what is computed already?"""

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq

from headway.core.protection import target
from headway.core.step import Match, Resident
from headway.engine.kv_blocks import KVBlocks
from headway.engine.sequence import Sequence


class KVView:
    """The KV cache as the planner's `Memory`: it answers by sequence and is never changed."""

    def __init__(
        self,
        kv: KVBlocks,
        sequences: Mapping[str, Sequence],
        siblings: Mapping[str, Seq[Sequence]],
    ) -> None:
        self.block_size = kv.block_size
        self.num_blocks = kv.num_blocks
        self.num_available = kv.num_available
        self._kv = kv
        self._sequences = sequences
        self._siblings = siblings

    def lacking(self, residents: Collection[Resident]) -> dict[str, int]:
        """See `Memory`. Of most, the last block has room for one token more and one holder."""
        size, forked, found = self.block_size, self._kv.forked, {}
        for r in residents:
            if (
                r.protected
                or r.num_tokens - r.num_computed > -r.num_computed % size
                or r.sequence_id in forked
            ):
                blocks = self._kv.blocks_to_grow(r.sequence_id, r.num_computed, target(r))
                if blocks > 0:
                    found[r.sequence_id] = blocks
        return found

    def releasable(self, sequence_ids: Collection[str], pinned: Collection[int]) -> int:
        """See `Memory`."""
        return self._kv.releasable(sequence_ids, pinned)

    def match(self, sequence_id: str) -> Match:
        """Find a resident sibling that has computed the common prompt, else ask the prefix cache.

        From a sibling all prompt tokens but the last are taken: that one is computed again, because
        each answer draws its first token itself.
        """
        sequence = self._sequences[sequence_id]
        found = self._kv.match(sequence.namespace, sequence.token_ids, known=sequence.known_match)
        sequence.known_match = found
        num_shared = sequence.num_prompt_tokens - 1
        if num_shared > found.num_tokens:
            for sibling in self._siblings[sequence.request.request_id]:
                if sibling.prompt_is_computed and self._kv.resident(sibling.sequence_id):
                    return Match(num_shared, 0, sibling.sequence_id)
        return Match(found.num_tokens, found.num_evictable, blocks=found.blocks)
