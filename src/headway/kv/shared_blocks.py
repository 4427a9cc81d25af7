"""May this block be written where it is, and what becomes of it when a holder lets go?

Joins the pool, the prefix cache and the copies owed, so that these hold at every moment:

1. A block with more than one holder is never written: the writer gets another one instead.
2. A block that is written or taken is forgotten by the prefix cache first.
3. A block without holder is cached if the prefix cache knows it, else free.
4. The source of an owed copy is held until the copies are taken, so nobody else gets it as a
   destination before it is read; a destination that is let go first is no longer owed anything.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headway.kv.block_pool import BlockPool
from headway.kv.copies import OwedCopies
from headway.kv.prefix_cache import PrefixCache


class SharedBlocks:
    """Blocks whose holders are block tables. Every operation on one block is O(1)."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        """Start with all blocks free. Raises ValueError when there is none."""
        self.pool = BlockPool(num_blocks)
        self.prefix = PrefixCache(block_size)
        self.copies = OwedCopies()

    def is_shared(self, block: int) -> bool:
        """Return whether more than one block table holds `block`.

        A copy owed does not count: it is made before anything is written.
        """
        num_holders = self.pool.ref_count(block)
        return num_holders > 1 and num_holders - self.copies.num_reading(block) > 1

    def take(self) -> int:
        """Return a block that the caller alone holds. Raises OutOfBlocksError."""
        block = self.pool.take()
        self.prefix.forget(block)
        return block

    def writable(self, block: int, *, keep_content: bool) -> int:
        """Return the block that one holder of `block` may write instead: itself or a fresh one.

        With `keep_content` a fresh one is owed a copy. Raises OutOfBlocksError.
        """
        if not self.is_shared(block):
            self.prefix.forget(block)
            return block
        fresh = self.take()
        if keep_content:
            self.pool.hold(self.copies.owe(block, fresh))
        self.release(block)
        return fresh

    def release(self, block: int) -> None:
        """Remove a holder. Raises ValueError when there is none."""
        self.pool.release(block, keep=block in self.prefix)
        if self.pool.ref_count(block) == 0:
            source = self.copies.cancel(block)
            if source is not None:
                self.release(source)

    def releasable(self, num_holders: Mapping[int, int]) -> int:
        """Return how many blocks become available if so many holders of each let it go."""
        count = 0
        for block, leaving in num_holders.items():
            if self.pool.ref_count(block) == leaving:
                source = self.copies.source_of(block)
                count += 1 if source is None else 1 + (self.pool.ref_count(source) == 1)
        return count

    def take_copies(self) -> list[tuple[int, int]]:
        """Return the (source, destination) copies owed, once. Any order of making them is right."""
        copies = self.copies.take()
        for source, _ in copies:
            self.release(source)
        return copies

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Compare with the block tables. Raises AssertionError that names what is off (G7)."""
        holders = Counter(block for table in tables for block in table)
        self.copies.check_integrity(holders)
        holders.update(self.copies.sources())
        self.pool.check_integrity(holders, self.prefix.blocks)
        self.prefix.check_integrity()
