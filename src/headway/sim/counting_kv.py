"""How many blocks does a simulated request hold?

Stands in for `kv.cache.KVCache` where nobody computes: blocks and tokens are only counted. A prefix
that many requests begin with is one entry, which they hold together. What a request computed beyond
it stays cached under its own name when it leaves, so that it is found again after a preemption.
Cached entries are used up from their ends, the one unused for longest first.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from headway.errors import OutOfBlocksError
from headway.kv.prefix_cache import PrefixMatch
from headway.sim.counted_tokens import CountedTokens

_NAMES_EACH = 1 << 24
"""Block numbers of two owners are so far apart: more than anybody holds."""


@dataclass(slots=True, eq=False)
class _Entry:
    """Blocks that are found by what is in them: a prefix, or what one request left behind."""

    key: object
    first_block: int
    num_blocks: int = 0
    num_holders: int = 0
    start: int = 0
    """Blocks that come before it in the sequence."""


@dataclass(slots=True, eq=False)
class _Table:
    namespace: str
    tokens: CountedTokens
    first_block: int
    shared: _Entry | None = None
    start: int = 0
    """Blocks of the sequence before its own ones; those are the shared entry's."""
    num_own: int = 0
    num_committed: int = 0
    """Tokens."""


class _Numbers(Sequence[int]):
    """The numbers of a shared entry's blocks and of a request's own."""

    __slots__ = ("_own", "_shared")

    def __init__(self, shared: range, own: range) -> None:
        self._shared = shared
        self._own = own

    def __len__(self) -> int:
        return len(self._shared) + len(self._own)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return (*self._shared, *self._own)[index]

    def __iter__(self) -> Iterator[int]:
        yield from self._shared
        yield from self._own


class CountingKV:
    """The part of `KVCache` that an engine's scheduler uses, without blocks; see `KVBlocks`."""

    def __init__(
        self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self.num_free = num_blocks
        self.num_cached = 0
        self.forked: frozenset[str] = frozenset()
        self._tables: dict[str, _Table] = {}
        self._entries: dict[object, _Entry] = {}
        self._unheld: OrderedDict[object, _Entry] = OrderedDict()
        self._owners = 0

    @property
    def num_available(self) -> int:
        """Blocks that can be taken now."""
        return self.num_free + self.num_cached

    @property
    def num_held(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - self.num_free - self.num_cached

    def resident(self, request_id: str) -> bool:
        """Return whether the request was admitted, and not freed since."""
        return request_id in self._tables

    def block_table(self, request_id: str) -> Sequence[int]:
        """Return numbers for the request's blocks, equal where two requests share one."""
        table = self._tables[request_id]
        own = range(table.first_block, table.first_block + table.num_own)
        return own if table.shared is None else _Numbers(_numbers(table.shared), own)

    def match(
        self, namespace: str, token_ids: Sequence[int], *, known: PrefixMatch | None = None
    ) -> PrefixMatch:
        """Return the longest cached prefix, at most all tokens but one. Changes nothing."""
        tokens = _counted(token_ids)
        shared, left, num_blocks = self._find(namespace, tokens, len(tokens))
        numbers: list[int] = []
        evictable = 0
        if shared is not None:
            numbers.extend(_numbers(shared))
            evictable = shared.num_blocks if shared.num_holders == 0 else 0
        if left is not None:
            used = num_blocks - left.start
            numbers.extend(range(left.first_block, left.first_block + used))
            evictable += used
        return PrefixMatch(
            num_tokens=num_blocks * self.block_size,
            num_evictable=evictable,
            namespace=namespace,
            token_ids=token_ids,
            blocks=tuple(numbers),
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
        """Make the request resident on its cached prefix. Returns the prefix's tokens."""
        if request_id in self._tables:
            raise ValueError(f"{request_id} is resident already")
        tokens = _counted(token_ids)
        shared, left, num_blocks = self._find(namespace, tokens, max_cached_tokens + 1)
        table = _Table(namespace, tokens, self._next_number(), shared, num_blocks)
        if shared is not None:
            self._hold(shared)
        if left is not None:
            table.start = left.start
            table.num_own = num_blocks - left.start
            self._forget(left)
            self.num_free -= table.num_own
        self._tables[request_id] = table
        return num_blocks * self.block_size

    def fork(self, parent_id: str, child_id: str, num_tokens: int) -> None:
        """Refuse: a simulated request has one answer, and so no siblings."""
        raise ValueError(f"{child_id} cannot be forked from {parent_id}: blocks are only counted")

    def blocks_to_grow(self, request_id: str, num_computed: int, num_tokens: int) -> int:
        """Return how many blocks `grow` with these arguments would take."""
        table = self._tables[request_id]
        return max(0, -(-num_tokens // self.block_size) - table.start - table.num_own)

    def grow(self, request_id: str, num_computed: int, num_tokens: int) -> None:
        """Give the request blocks for `num_tokens`. Raises OutOfBlocksError."""
        table = self._tables[request_id]
        need = -(-num_tokens // self.block_size) - table.start - table.num_own
        if need <= 0:
            return
        if need > self.num_available:
            text = f"{request_id} needs {need} blocks, {self.num_available} are available"
            raise OutOfBlocksError(text)
        self._evict(need - self.num_free)
        self.num_free -= need
        table.num_own += need

    def commit(self, request_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """Make what was computed findable: the part that is a named prefix by everybody."""
        table = self._tables[request_id]
        table.num_committed = num_computed
        tokens = table.tokens
        if not tokens.prefix or not self.enable_prefix_caching:
            return
        num_blocks = min(num_computed, tokens.num_prefix_tokens) // self.block_size
        if num_blocks > table.start:
            self._share(table, num_blocks)

    def releasable(self, request_ids: Iterable[str], pinned: Collection[int] = ()) -> int:
        """Return by how much `num_available` would rise if the requests were freed together now."""
        freed: list[range] = []
        entries: dict[object, tuple[_Entry, int]] = {}
        for request_id in request_ids:
            table = self._tables[request_id]
            freed.append(range(table.first_block, table.first_block + table.num_own))
            if table.shared is not None:
                _, leaving = entries.get(table.shared.key, (table.shared, 0))
                entries[table.shared.key] = table.shared, leaving + 1
        freed += (
            _numbers(entry) for entry, leaving in entries.values() if leaving == entry.num_holders
        )
        return sum(map(len, freed)) - sum(any(block in each for each in freed) for block in pinned)

    def free(self, request_id: str) -> None:
        """Let go of all blocks. Nothing happens when the request is not resident."""
        table = self._tables.pop(request_id, None)
        if table is None:
            return
        computed = max(0, table.num_committed // self.block_size - table.start)
        kept = min(table.num_own, computed) if self.enable_prefix_caching else 0
        self.num_free += table.num_own - kept
        earlier = self._entries.get(table.tokens.key)
        if earlier is not None:
            self._forget(earlier)
        if kept:
            left = _Entry(table.tokens.key, table.first_block, kept, 0, table.start)
            self._entries[left.key] = self._unheld[left.key] = left
            self.num_cached += kept
        if table.shared is not None:
            self._let_go(table.shared)

    def take_copies(self) -> list[tuple[int, int]]:
        """Return the copies owed: none."""
        return []

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off (G7)."""
        unheld = {key for key, entry in self._entries.items() if entry.num_holders == 0}
        assert unheld == set(self._unheld), "an entry is held and evictable, or neither"
        cached = sum(entry.num_blocks for entry in self._unheld.values())
        assert cached == self.num_cached, f"{cached} blocks are cached, {self.num_cached} counted"
        own = sum(table.num_own for table in self._tables.values())
        shared = sum(e.num_blocks for e in self._entries.values() if e.num_holders > 0)
        assert own + shared == self.num_held, f"{own} + {shared} held, {self.num_held} counted"
        assert self.num_free >= 0, "more blocks are in use than there are"
        holders = [table.shared for table in self._tables.values()]
        for entry in self._entries.values():
            assert holders.count(entry) == entry.num_holders, f"holders of {entry.key} are off"

    def _find(
        self, namespace: str, tokens: CountedTokens, limit: int
    ) -> tuple[_Entry | None, _Entry | None, int]:
        """Return the prefix entry and what the request left behind, and the blocks of both.

        All within the first `limit` - 1 tokens, and all tokens but one.
        """
        if not self.enable_prefix_caching:
            return None, None, 0
        most = (min(limit, len(tokens)) - 1) // self.block_size
        shared = self._entries.get((namespace, tokens.prefix)) if tokens.prefix else None
        num_shared = 0
        if shared is not None:
            whole = tokens.num_prefix_tokens // self.block_size
            num_shared = min(shared.num_blocks, whole, most)
        left = self._entries.get(tokens.key)
        if left is not None and left.start <= num_shared:
            num_blocks = min(left.start + left.num_blocks, most)
            if num_blocks > num_shared:
                return (shared if left.start > 0 else None), left, num_blocks
        return (shared if num_shared > 0 else None), None, num_shared

    def _share(self, table: _Table, num_blocks: int) -> None:
        """Give the entry of the table's prefix what of its own blocks comes next in it, if any.

        Who computes what somebody else has shared meanwhile keeps those blocks to itself.
        """
        key = (table.namespace, table.tokens.prefix)
        entry = self._entries.get(key)
        if table.start != (0 if entry is None else entry.num_blocks):
            return
        if table.shared is None:
            if entry is None:
                entry = _Entry(key, self._next_number())
                self._entries[key] = self._unheld[key] = entry
            self._hold(entry)
            table.shared = entry
        table.shared.num_blocks += num_blocks - table.start
        table.num_own -= num_blocks - table.start
        table.start = num_blocks

    def _hold(self, entry: _Entry) -> None:
        if entry.num_holders == 0:
            del self._unheld[entry.key]
            self.num_cached -= entry.num_blocks
        entry.num_holders += 1

    def _let_go(self, entry: _Entry) -> None:
        entry.num_holders -= 1
        if entry.num_holders == 0:
            self._unheld[entry.key] = entry
            self.num_cached += entry.num_blocks

    def _forget(self, entry: _Entry) -> None:
        """Free an entry's blocks."""
        del self._unheld[entry.key], self._entries[entry.key]
        self.num_cached -= entry.num_blocks
        self.num_free += entry.num_blocks

    def _evict(self, num_blocks: int) -> None:
        while num_blocks > 0:
            entry = next(iter(self._unheld.values()))
            taken = min(num_blocks, entry.num_blocks)
            num_blocks -= taken
            if taken == entry.num_blocks:
                self._forget(entry)
            else:
                entry.num_blocks -= taken
                self.num_cached -= taken
                self.num_free += taken

    def _next_number(self) -> int:
        self._owners += 1
        return self._owners * _NAMES_EACH


def _numbers(entry: _Entry) -> range:
    return range(entry.first_block, entry.first_block + entry.num_blocks)


def _counted(token_ids: Sequence[int]) -> CountedTokens:
    assert isinstance(token_ids, CountedTokens), "simulated tokens are only counted"
    return token_ids
