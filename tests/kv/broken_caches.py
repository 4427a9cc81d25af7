"""Which mistakes must the tests of the cache notice?

Each class makes one mistake on purpose. A test that lets one pass would let the mistake pass.
"""

from collections.abc import Sequence

from headway.kv.cache import KVCache
from headway.kv.prefix_cache import PrefixMatch
from headway.kv.shared_blocks import SharedBlocks


class _WritesInPlace(SharedBlocks):
    def is_shared(self, block: int) -> bool:
        return False


class NoCopyOnWrite(KVCache):
    """Writes shared blocks where they are."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._shared = _WritesInPlace(num_blocks, block_size)


class NoCopies(KVCache):
    """Replaces shared blocks but does not copy their content."""

    def take_copies(self) -> list[tuple[int, int]]:
        super().take_copies()
        return []


class _LosesSource(SharedBlocks):
    def writable(self, block: int, *, keep_content: bool) -> int:
        fresh = super().writable(block, keep_content=keep_content)
        if fresh != block and keep_content:
            self.lost.append((self.copies.source_of(fresh), fresh))
            source = self.copies.cancel(fresh)
            assert source is not None
            self.release(source)
        return fresh

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.lost: list[tuple[int | None, int]] = []

    def take_copies(self) -> list[tuple[int, int]]:
        copies = [(source, fresh) for source, fresh in self.lost if source is not None]
        self.lost.clear()
        return copies


class SourceNotHeld(KVCache):
    """Lets others take the source of a copy before it is made, and keeps dead destinations."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._shared = _LosesSource(num_blocks, block_size)


class _RemembersTaken(SharedBlocks):
    def take(self) -> int:
        return self.pool.take()


class StaleHits(KVCache):
    """Still finds blocks whose content was given up."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self._shared = _RemembersTaken(num_blocks, block_size)


class OneNamespace(KVCache):
    """Shares prefixes among all tenants."""

    def match(
        self, namespace: str, token_ids: Sequence[int], *, known: PrefixMatch | None = None
    ) -> PrefixMatch:
        return super().match("", token_ids, known=known)

    def admit(
        self,
        request_id: str,
        namespace: str,
        token_ids: Sequence[int],
        *,
        max_cached_tokens: int,
        known: PrefixMatch | None = None,
    ) -> int:
        return super().admit(
            request_id, "", token_ids, max_cached_tokens=max_cached_tokens, known=known
        )


BROKEN_CACHES: tuple[type[NoCopyOnWrite | NoCopies | SourceNotHeld | StaleHits | OneNamespace], ...]
BROKEN_CACHES = (NoCopyOnWrite, NoCopies, SourceNotHeld, StaleHits, OneNamespace)
