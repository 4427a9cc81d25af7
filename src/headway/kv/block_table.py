"""Which blocks must a request get before its next tokens may be written?

A table lists blocks in token order: block i holds the KV of the tokens from i * block_size on.

    tokens    |--- cached ---|--- computed ------------------|--- written next ---|
    blocks    [ shared ][ shared ][ own ][ own or shared, partly filled ][ new ][ new ]
                                         ^ num_computed is in it, or at its start if it is new

Only what lies from num_computed on is written, so of the blocks already held just the last, partly
filled one is ever copied: forks share it until one of them goes on.
"""

from collections.abc import Sequence
from itertools import islice

from headway.kv.shared_blocks import SharedBlocks


class BlockTable:
    """The blocks of one request, in token order, with the keys of those full and computed."""

    def __init__(
        self,
        shared: SharedBlocks,
        block_size: int,
        namespace: str,
        found: Sequence[tuple[bytes, int]],
    ) -> None:
        """Start with, and hold, the blocks of a cached prefix."""
        self.namespace = namespace
        self.keys = [key for key, _ in found]
        self.blocks = [block for _, block in found]
        self._shared = shared
        self._block_size = block_size
        for block in self.blocks:
            shared.pool.hold(block)

    @property
    def capacity(self) -> int:
        """How many tokens the blocks have room for."""
        return len(self.blocks) * self._block_size

    def fork(self, num_tokens: int) -> "BlockTable":
        """Return a table on the same blocks of the first `num_tokens`, which must be computed.

        Raises ValueError when this table does not hold that many.
        """
        if not 0 <= num_tokens <= self.capacity:
            raise ValueError(f"{num_tokens} tokens of {self.capacity} cannot be shared")
        child = BlockTable(self._shared, self._block_size, self.namespace, ())
        child.keys = self.keys[: num_tokens // self._block_size]
        child.blocks = self.blocks[: -(-num_tokens // self._block_size)]
        for block in child.blocks:
            self._shared.pool.hold(block)
        return child

    def blocks_to_grow(self, num_computed: int, num_tokens: int) -> int:
        """Return how many blocks `grow` would take. Raises ValueError as it would."""
        written = self._held_and_written(num_computed, num_tokens)
        # Asked of each resident in each step; of most, just the last block is written.
        num_blocks = max(0, -(-num_tokens // self._block_size) - len(self.blocks))
        for index in written:
            num_blocks += self._shared.is_shared(self.blocks[index])
        return num_blocks

    def grow(self, num_computed: int, num_tokens: int) -> None:
        """Make the tokens `num_computed` to `num_tokens` writable. The blocks must be available.

        Raises ValueError when tokens before `num_computed` are not held.
        """
        for index in self._held_and_written(num_computed, num_tokens):
            keep_content = index * self._block_size < num_computed
            self.blocks[index] = self._shared.writable(
                self.blocks[index], keep_content=keep_content
            )
        while self.capacity < num_tokens:
            self.blocks.append(self._shared.take())
        del self.keys[num_computed // self._block_size :]

    def commit(self, token_ids: Sequence[int], num_computed: int) -> None:
        """Make the blocks that became full since the last commit findable, at their cost only.

        Raises ValueError when `num_computed` is more than is held or given.
        """
        if num_computed > min(len(token_ids), self.capacity):
            raise ValueError(f"{num_computed} tokens of {len(token_ids)} cannot be computed")
        known = len(self.keys)
        num_full = num_computed // self._block_size
        if num_full > known:
            keys = self._shared.prefix.keys_after(self.keys, self.namespace, token_ids)
            new_keys = list(islice(keys, num_full - known))
            self._shared.prefix.insert(new_keys, self.blocks[known:num_full])
            self.keys += new_keys

    def release(self) -> None:
        """Let go of all blocks, tail first: of those cached, the tail is reused before the head.

        Where another request computed the same block first, that one was findable and ours was
        not; if it has been taken since, ours takes its place.
        """
        self._shared.prefix.insert(self.keys, self.blocks[: len(self.keys)])
        for block in reversed(self.blocks):
            self._shared.release(block)

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off."""
        if len(set(self.blocks)) != len(self.blocks):
            raise AssertionError(f"a table holds a block twice: {self.blocks}")
        if len(self.keys) > len(self.blocks):
            raise AssertionError(f"{len(self.keys)} keys for {len(self.blocks)} blocks")

    def _held_and_written(self, num_computed: int, num_tokens: int) -> range:
        num_held, size = len(self.blocks), self._block_size
        if not (0 <= num_computed <= num_tokens and num_computed <= num_held * size):
            raise ValueError(f"cannot grow from {num_computed} of {self.capacity} to {num_tokens}")
        return range(num_computed // size, min(num_held, -(-num_tokens // size)))
