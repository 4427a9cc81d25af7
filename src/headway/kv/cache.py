"""Which blocks does a request hold?

A request is resident from `admit` or `fork` until `free`. In each engine step, in this order:

    match, admit, grow     before the plan is final; a refusal changes nothing
    take_copies            once, before the forward pass that carries them out first
    commit                 after it: what was computed becomes findable
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from headway.errors import OutOfBlocksError
from headway.kv.block_table import BlockTable
from headway.kv.prefix_cache import PrefixMatch
from headway.kv.shared_blocks import SharedBlocks


class KVCache:
    """Block tables over one pool. Every call that raises has changed nothing.

    A method that takes `request_id` raises KeyError when that request is not resident.
    """

    def __init__(
        self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True
    ) -> None:
        """Start empty. `block_size` is in tokens. Raises ValueError when a size is below 1."""
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._shared = SharedBlocks(num_blocks, block_size)
        self._tables: dict[str, BlockTable] = {}
        self.forked: set[str] = set()
        """Requests that may share a partly filled block: forked, and not grown since."""

    @property
    def num_available(self) -> int:
        """Blocks that can be taken now: free, or cached without a holder. O(1)."""
        return self._shared.pool.num_available

    @property
    def num_held(self) -> int:
        """Blocks held by a request, or by a copy that is owed."""
        return self._shared.pool.num_held

    @property
    def num_cached(self) -> int:
        """Blocks without a holder whose content can still be matched."""
        return self._shared.pool.num_cached

    @property
    def num_free(self) -> int:
        """Blocks without holder or content."""
        return self._shared.pool.num_free

    def resident(self, request_id: str) -> bool:
        """Return whether the request was admitted or forked, and not freed since."""
        return request_id in self._tables

    def block_table(self, request_id: str) -> Sequence[int]:
        """Return the request's blocks in token order, as they are now."""
        return tuple(self._tables[request_id].blocks)

    def match(
        self, namespace: str, token_ids: Sequence[int], *, known: PrefixMatch | None = None
    ) -> PrefixMatch:
        """Return the longest cached prefix, at most all tokens but one. Changes nothing.

        `known` is an earlier match of this `token_ids` object: what it hashed is only looked up.
        """
        found = self._find(namespace, token_ids, len(token_ids), known)
        return PrefixMatch(
            num_tokens=len(found) * self.block_size,
            num_evictable=sum(self._shared.pool.ref_count(block) == 0 for _, block in found),
            namespace=namespace,
            token_ids=token_ids,
            keys=tuple(key for key, _ in found),
            blocks=tuple(block for _, block in found),
        )

    def admit(
        self,
        request_id: str,
        namespace: str,
        token_ids: Sequence[int],
        *,
        max_cached_tokens: int,
        known: PrefixMatch | None = None,
    ) -> int:
        """Make the request resident and pin the longest cached prefix. Returns its tokens.

        The prefix is at most `max_cached_tokens` long. It is looked up anew, `known` only spares
        the hashing, and pinned before `grow` can evict anything for the same request. Raises
        ValueError when the request is resident already.
        """
        self._require_absent(request_id)
        found = self._find(namespace, token_ids, max_cached_tokens, known)
        self._tables[request_id] = BlockTable(self._shared, self.block_size, namespace, found)
        return len(found) * self.block_size

    def fork(self, parent_id: str, child_id: str, num_tokens: int) -> None:
        """Make the child resident on the parent's blocks of the first `num_tokens`, all computed.

        Raises ValueError when the child is resident or the parent holds fewer tokens.
        """
        self._require_absent(child_id)
        self._tables[child_id] = self._tables[parent_id].fork(num_tokens)
        self.forked.update((parent_id, child_id))

    def blocks_to_grow(self, request_id: str, num_computed: int, num_tokens: int) -> int:
        """Return how many blocks `grow` with these arguments would take."""
        return self._tables[request_id].blocks_to_grow(num_computed, num_tokens)

    def grow(self, request_id: str, num_computed: int, num_tokens: int) -> None:
        """Give the request blocks to write the tokens `num_computed` to `num_tokens` in.

        A shared block among them is replaced, and a copy owed where tokens before
        `num_computed` are in it. Raises OutOfBlocksError when too few blocks are available, and
        ValueError when the request does not hold `num_computed` tokens.
        """
        table = self._tables[request_id]
        need = table.blocks_to_grow(num_computed, num_tokens)
        if need > self.num_available:
            raise OutOfBlocksError(
                f"{request_id} needs {need} blocks, {self.num_available} are available"
            )
        table.grow(num_computed, num_tokens)
        self.forked.discard(request_id)

    def commit(self, request_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """Make the full blocks of the first `num_computed` tokens findable; their KV is computed.

        `token_ids` are all tokens of the request. Costs only the blocks that became full since
        the last commit. Raises ValueError when `num_computed` is more than is held or given, or
        a block is findable for other tokens.
        """
        table = self._tables[request_id]
        if self.enable_prefix_caching:
            table.commit(token_ids, num_computed)

    def releasable(self, request_ids: Iterable[str], pinned: Collection[int] = ()) -> int:
        """Return by how much `num_available` would rise if the requests were freed together now.

        Blocks in `pinned` do not count.
        """
        held = Counter(chain.from_iterable(self._tables[each].blocks for each in request_ids))
        for block in pinned:
            held.pop(block, None)
        return self._shared.releasable(held)

    def free(self, request_id: str) -> None:
        """Let go of all blocks; those committed stay findable until taken, heads longest.

        Copies owed to the request alone are dropped. Nothing happens when it is not resident.
        """
        table = self._tables.pop(request_id, None)
        if table is not None:
            table.release()
            self.forked.discard(request_id)

    def take_copies(self) -> list[tuple[int, int]]:
        """Return the (source, destination) copies to make before the next forward pass, once.

        No block is destination twice, or both source and destination: any order is right.
        """
        return self._shared.take_copies()

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off (G7). Linear in blocks and tables."""
        for table in self._tables.values():
            table.check_integrity()
        self._shared.check_integrity([table.blocks for table in self._tables.values()])

    def _require_absent(self, request_id: str) -> None:
        if request_id in self._tables:
            raise ValueError(f"{request_id} is resident already")

    def _find(
        self,
        namespace: str,
        token_ids: Sequence[int],
        max_tokens: int,
        known: PrefixMatch | None,
    ) -> list[tuple[bytes, int]]:
        if not self.enable_prefix_caching:
            return []
        # The last token is always computed: its logits are what the request is here for.
        max_blocks = max(0, min(len(token_ids) - 1, max_tokens)) // self.block_size
        return self._shared.prefix.find(namespace, token_ids, max_blocks, known)
