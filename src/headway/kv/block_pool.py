"""Which block is reused first?

A block is in exactly one of three states:

    free      no holder, nothing worth keeping      -> taken first, the last one freed before others
    cached    no holder, its content may be wanted  -> taken when none is free, the oldest first
    held      as many holders as its reference count -> never taken
"""

from collections import Counter, OrderedDict
from collections.abc import Set

from headway.errors import OutOfBlocksError


class BlockPool:
    """The blocks 0 to num_blocks - 1 with their reference counts. Every operation is O(1).

    Cached blocks wait in an OrderedDict, a linked list with a lookup table: a prefix hit takes
    its block out of the middle at once, where a deque would have to be searched.
    """

    def __init__(self, num_blocks: int) -> None:
        """Start with all blocks free. Raises ValueError when there is none."""
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be at least 1, got {num_blocks}")
        self.num_blocks = num_blocks
        self._free = list(reversed(range(num_blocks)))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._ref_counts = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """How many blocks have neither holder nor content worth keeping."""
        return len(self._free)

    @property
    def num_cached(self) -> int:
        """How many blocks have no holder but are kept for reuse."""
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """How many blocks can be taken now."""
        return len(self._free) + len(self._cached)

    @property
    def num_held(self) -> int:
        """How many blocks have at least one holder."""
        return self.num_blocks - self.num_available

    def ref_count(self, block: int) -> int:
        """Return how many holders `block` has."""
        return self._ref_counts[block]

    def take(self) -> int:
        """Return a block with one holder, the caller. A cached one has lost its content thereby.

        Raises OutOfBlocksError when every block is held.
        """
        if self._free:
            block = self._free.pop()
        elif self._cached:
            block, _ = self._cached.popitem(last=False)
        else:
            raise OutOfBlocksError(f"all {self.num_blocks} blocks are held")
        self._ref_counts[block] = 1
        return block

    def hold(self, block: int) -> None:
        """Add a holder to a held or cached block. Raises ValueError when the block is free."""
        if self._ref_counts[block] == 0:
            if block not in self._cached:
                raise ValueError(f"block {block} is free: there is nothing to hold")
            del self._cached[block]
        self._ref_counts[block] += 1

    def release(self, block: int, *, keep: bool) -> None:
        """Remove a holder. After the last one, `keep` makes the block cached, else it is free.

        Of blocks released one after the other, the first is reused first: release tails before
        heads, since a tail is of no use without its head. Raises ValueError when nobody holds it.
        """
        if self._ref_counts[block] == 0:
            raise ValueError(f"block {block} is released but has no holder")
        self._ref_counts[block] -= 1
        if self._ref_counts[block] > 0:
            return
        if keep:
            self._cached[block] = None
        else:
            self._free.append(block)

    def check_integrity(self, holders: Counter[int], worth_keeping: Set[int]) -> None:
        """Compare with what the owners know: holders by block, and blocks that have content.

        Raises AssertionError that names the block in the wrong state (G7).
        """
        free = set(self._free)
        if len(free) != len(self._free):
            raise AssertionError(f"a block is free twice: {sorted(self._free)}")
        for block, ref_count in enumerate(self._ref_counts):
            if ref_count != holders[block]:
                raise AssertionError(
                    f"block {block} counts {ref_count} holders, has {holders[block]}"
                )
            states = (block in free, block in self._cached, ref_count > 0)
            if sum(states) != 1:
                raise AssertionError(f"block {block} is (free, cached, held) = {states}")
            if ref_count == 0 and (block in worth_keeping) != (block in self._cached):
                raise AssertionError(f"block {block} without holder: findable but not cached")
