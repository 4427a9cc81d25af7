"""What does the planner learn of vLLM's KV blocks?

It reads vLLM's own books and changes nothing. All layers are of one group, each of whose tokens
keeps its place in a block to the end; `compat.py` refuses others.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from headway.core.protection import target
from headway.core.step import Match, Resident
from headway.vllm_plugin.entry import VllmRequest


class KVCacheBlock(Protocol):
    """What is read of vLLM's `KVCacheBlock`."""

    block_id: int
    ref_cnt: int


class GroupManager(Protocol):
    """What is read of vLLM's `SingleTypeKVCacheManager`, the blocks of one group of layers."""

    block_size: int
    req_to_blocks: Mapping[str, Sequence[KVCacheBlock]]


class KVMemory:
    """The blocks of a vLLM engine, as the `Memory` of one step.

    `slack` are tokens beyond the planned ones that each sequence gets blocks for, drafts that
    speculative decoding writes; up to `max_model_len`, as vLLM counts them.
    """

    def __init__(
        self,
        kv_cache_manager: Any,
        requests: Mapping[str, VllmRequest],
        *,
        slack: int,
        max_model_len: int,
    ) -> None:
        self._kv = kv_cache_manager
        self._requests = requests
        self._slack, self._max_model_len = slack, max_model_len
        group: GroupManager = kv_cache_manager.coordinator.single_type_managers[0]
        self._held = group.req_to_blocks
        pool = kv_cache_manager.block_pool
        self.block_size = group.block_size
        self.num_blocks = pool.num_gpu_blocks - 1
        self.num_available = pool.get_num_free_blocks()

    def lacking(self, residents: Collection[Resident]) -> dict[str, int]:
        """See `Memory`."""
        found: dict[str, int] = {}
        held_by, block_size = self._held, self.block_size
        for resident in residents:
            num_tokens = target(resident)
            num_tokens = max(num_tokens, min(num_tokens + self._slack, self._max_model_len))
            held = held_by.get(resident.sequence_id, ())
            if num_tokens > len(held) * block_size:
                found[resident.sequence_id] = -(-num_tokens // block_size) - len(held)
        return found

    def releasable(self, sequence_ids: Collection[str], pinned: Collection[int]) -> int:
        """See `Memory`. A block is free when all who hold it leave."""
        held: Counter[int] = Counter()
        holders: dict[int, int] = {}
        for sequence_id in sequence_ids:
            for block in self._held.get(sequence_id, ()):
                held[block.block_id] += 1
                holders[block.block_id] = block.ref_cnt
        return sum(count == holders[block] and block not in pinned for block, count in held.items())

    def match(self, sequence_id: str) -> Match:
        """See `Memory`. Siblings share by the prefix cache, which finds blocks once they are full.

        What is shared within a step, vLLM finds by itself: the plan is then only too careful.
        """
        found = self._kv.get_computed_blocks(self._requests[sequence_id])
        (matched,), num_tokens = found[0].blocks, found[1]
        return Match(
            num_tokens,
            sum(block.ref_cnt == 0 for block in matched),
            blocks=tuple(block.block_id for block in matched),
        )
