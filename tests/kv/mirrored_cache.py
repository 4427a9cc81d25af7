"""Does a cache keep its promises at every call that an engine makes?

`MirroredCache` drives a `KVCache` as an engine would and writes into a `KVMemory` what a model
would write. Each call asserts what the cache promised about it, `check` asserts what always holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from headway.errors import OutOfBlocksError
from headway.kv.cache import KVCache
from headway.kv.prefix_cache import PrefixMatch

from .kv_memory import KVMemory


@dataclass
class Request:
    """A resident as its engine knows it; the step being planned computes up to `end`."""

    namespace: str
    token_ids: list[int]
    num_computed: int
    end: int
    num_committed: int


class MirroredCache:
    """A KVCache, the memory it keeps the books of, and the requests in it."""

    def __init__(self, kv: KVCache) -> None:
        self.kv = kv
        self.memory = KVMemory(kv.num_blocks, kv.block_size)
        self.requests: dict[str, Request] = {}
        self.is_planning = False

    def match(self, namespace: str, token_ids: Sequence[int]) -> PrefixMatch:
        """Ask, and assert that asking changed nothing and leaves a token to compute."""
        before = self._state()
        found = self.kv.match(namespace, token_ids)
        assert self._state() == before
        assert 0 <= found.num_tokens <= max(0, len(token_ids) - 1)
        assert found.num_tokens % self.kv.block_size == 0
        assert 0 <= found.num_evictable * self.kv.block_size <= found.num_tokens
        return found

    def admit(
        self,
        request_id: str,
        namespace: str,
        token_ids: list[int],
        *,
        max_cached_tokens: int | None = None,
        known: PrefixMatch | None = None,
    ) -> int:
        """Admit; the prefix is the one that `match` finds, cut to the maximum."""
        limit = len(token_ids) if max_cached_tokens is None else max_cached_tokens
        found = self.match(namespace, token_ids)
        available = self.kv.num_available
        cached = self.kv.admit(
            request_id, namespace, token_ids, max_cached_tokens=limit, known=known
        )
        size = self.kv.block_size
        assert cached == min(found.num_tokens, limit // size * size)
        assert len(self.kv.block_table(request_id)) * size == cached
        if cached == found.num_tokens:
            assert self.kv.num_available == available - found.num_evictable
        self.requests[request_id] = Request(namespace, token_ids, cached, cached, cached)
        self._assert_spells(request_id)
        return cached

    def grow(self, request_id: str, num_tokens: int) -> bool:
        """Plan up to `num_tokens` more tokens; False if refused, which must change nothing (B1)."""
        request = self.requests[request_id]
        end = min(len(request.token_ids), request.num_computed + num_tokens)
        if end <= request.end:
            return True
        before, available = self._state(), self.kv.num_available
        need = self.kv.blocks_to_grow(request_id, request.num_computed, end)
        if need > available:
            with pytest.raises(OutOfBlocksError):
                self.kv.grow(request_id, request.num_computed, end)
            assert self._state() == before
            return False
        self.kv.grow(request_id, request.num_computed, end)
        self.is_planning = True
        assert self.kv.num_available == available - need
        assert self.kv.blocks_to_grow(request_id, request.num_computed, end) == 0
        request.end = end
        return True

    def forward(self) -> None:
        """Make the copies owed, then compute what was planned."""
        self.memory.copy(self.kv.take_copies())
        assert self.kv.take_copies() == []
        self._assert_all_spell()
        for request_id, request in self.requests.items():
            table = self.kv.block_table(request_id)
            self.memory.write(
                table, request.namespace, request.token_ids, request.num_computed, request.end
            )
            request.num_computed = request.end
        self.is_planning = False
        self._assert_all_spell()

    def commit(self, request_id: str) -> None:
        """Make what is computed findable."""
        request = self.requests[request_id]
        self.kv.commit(request_id, request.token_ids, request.num_computed)
        size = self.kv.block_size
        request.num_committed = request.num_computed // size * size

    def step(self) -> None:
        """Compute what was planned and commit all of it."""
        self.forward()
        for request_id in self.requests:
            self.commit(request_id)

    def fork(self, parent_id: str, child_id: str, num_tokens: int, tail: list[int]) -> None:
        """Fork at `num_tokens`; the child goes on with `tail`. Takes no block."""
        parent = self.requests[parent_id]
        available = self.kv.num_available
        self.kv.fork(parent_id, child_id, num_tokens)
        assert self.kv.num_available == available
        token_ids = parent.token_ids[:num_tokens] + tail
        num_committed = min(
            parent.num_committed, num_tokens // self.kv.block_size * self.kv.block_size
        )
        self.requests[child_id] = Request(
            parent.namespace, token_ids, num_tokens, num_tokens, num_committed
        )

    def rewind(self, request_id: str, num_tokens: int, tail: list[int]) -> None:
        """Take back what was computed after `num_tokens` and go on with `tail`."""
        request = self.requests[request_id]
        request.token_ids = request.token_ids[:num_tokens] + tail
        request.num_computed = request.end = num_tokens
        request.num_committed = min(request.num_committed, num_tokens)

    def free(self, request_id: str) -> None:
        """Free, as an abort, a preemption or an end does.

        As many blocks return as was said, and what was committed is found from now on (B5).
        """
        request = self.requests.pop(request_id)
        available, releasable = self.kv.num_available, self.kv.releasable([request_id])
        self.kv.free(request_id)
        assert self.kv.num_available == available + releasable
        assert not self.kv.resident(request_id)
        if self.kv.enable_prefix_caching:
            size = self.kv.block_size
            committed = [*request.token_ids[: request.num_committed], 0]
            found = self.match(request.namespace, committed)
            assert found.num_tokens == request.num_committed // size * size

    def check(self) -> None:
        """Assert what holds between any two calls (G7, and G8 and G11 between steps)."""
        kv = self.kv
        kv.check_integrity()
        assert kv.num_free + kv.num_held + kv.num_cached == kv.num_blocks
        assert kv.num_available == kv.num_free + kv.num_cached
        if not self.is_planning:
            self._assert_all_spell()

    def check_idle(self) -> None:
        """Assert that nothing is left of the requests (I0)."""
        assert not self.requests
        self.check()
        assert self.kv.take_copies() == []
        assert self.kv.num_held == 0
        assert self.kv.num_available == self.kv.num_blocks

    def _assert_all_spell(self) -> None:
        for request_id in self.requests:
            self._assert_spells(request_id)

    def _assert_spells(self, request_id: str) -> None:
        request = self.requests[request_id]
        self.memory.assert_spells(
            self.kv.block_table(request_id),
            request.namespace,
            request.token_ids,
            request.num_computed,
        )

    def _state(self) -> tuple[object, ...]:
        kv = self.kv
        tables = {request_id: kv.block_table(request_id) for request_id in self.requests}
        return tables, kv.num_free, kv.num_held, kv.num_cached
