"""What does the scheduler ask of a KV cache?

`kv.cache.KVCache` is one, and says what each call means; the simulator has one that only counts.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from headway.kv.prefix_cache import PrefixMatch


class KVBlocks(Protocol):
    """The part of `KVCache` that the scheduler and the planner's view of it use."""

    @property
    def num_blocks(self) -> int:
        """All blocks."""

    @property
    def block_size(self) -> int:
        """Tokens in one block."""

    @property
    def num_available(self) -> int:
        """Blocks that can be taken now."""

    @property
    def num_held(self) -> int:
        """Blocks that somebody holds."""

    @property
    def num_cached(self) -> int:
        """Blocks without a holder whose content can still be matched."""

    @property
    def num_free(self) -> int:
        """Blocks without holder or content."""

    @property
    def forked(self) -> Collection[str]:
        """Requests whose last block another may hold, too."""

    def resident(self, request_id: str) -> bool:
        """Return whether the request holds blocks."""

    def block_table(self, request_id: str) -> Sequence[int]:
        """Return the request's blocks."""

    def match(
        self, namespace: str, token_ids: Sequence[int], *, known: PrefixMatch | None = None
    ) -> PrefixMatch:
        """Return the longest cached prefix."""

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

    def fork(self, parent_id: str, child_id: str, num_tokens: int) -> None:
        """Make the child resident on the parent's blocks of the first `num_tokens`."""

    def blocks_to_grow(self, request_id: str, num_computed: int, num_tokens: int) -> int:
        """Return how many blocks `grow` would take."""

    def grow(self, request_id: str, num_computed: int, num_tokens: int) -> None:
        """Give the request blocks to write its tokens `num_computed` to `num_tokens` in."""

    def commit(self, request_id: str, token_ids: Sequence[int], num_computed: int) -> None:
        """Make the full blocks of the computed tokens findable."""

    def releasable(self, request_ids: Iterable[str], pinned: Collection[int] = ()) -> int:
        """Return by how much `num_available` would rise if these were freed together now."""

    def free(self, request_id: str) -> None:
        """Let go of all blocks."""

    def take_copies(self) -> list[tuple[int, int]]:
        """Return the copies to make before the next forward pass, once."""

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off."""
