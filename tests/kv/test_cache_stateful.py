"""Does every resident's block table always spell exactly its own computed tokens?

A random walk over all calls, on a pool so small that it is often full. It covers G7 (books balance
after every call), G8 (no block is written under its reader, lost or found stale) and G11 (no hit
across namespaces); the broken caches prove that it would notice.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headway.kv.cache import KVCache
from headway.kv.prefix_cache import PrefixMatch

from .broken_caches import BROKEN_CACHES
from .mirrored_cache import MirroredCache

NUM_BLOCKS, BLOCK_SIZE = 9, 4
# How long a walk takes says nothing about the cache, and depends on what else the machine does.
WALK = settings(stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))

tokens = st.lists(st.integers(0, 1), max_size=6)
heads = st.sampled_from([[], [7] * 5, [7] * 8, [7] * 4 + [8] * 8])
prompts = st.builds(list.__add__, heads, tokens).filter(bool)
namespaces = st.sampled_from(["a", "b"])


class CacheMachine(RuleBasedStateMachine):
    """Admits, grows, computes, commits, forks, rewinds and frees in any order."""

    residents = Bundle("residents")

    def __init__(self, make_cache: Callable[[int, int], KVCache] = KVCache) -> None:
        super().__init__()
        self.cache = MirroredCache(make_cache(NUM_BLOCKS, BLOCK_SIZE))
        self.remembered: list[tuple[str, list[int], PrefixMatch]] = []
        self.num_admitted = 0

    def _new_id(self) -> str:
        self.num_admitted += 1
        return f"r{self.num_admitted}"

    @rule(target=residents, namespace=namespaces, prompt=prompts)
    def admit(self, namespace: str, prompt: list[int]) -> str:
        request_id = self._new_id()
        self.cache.admit(request_id, namespace, prompt)
        return request_id

    @rule(target=residents, namespace=namespaces, prompt=prompts, limit=st.integers(0, 20))
    def admit_with_limit(self, namespace: str, prompt: list[int], limit: int) -> str:
        request_id = self._new_id()
        self.cache.admit(request_id, namespace, prompt, max_cached_tokens=limit)
        return request_id

    @rule(target=residents, namespace=namespaces, prompt=prompts)
    def admit_and_compute(self, namespace: str, prompt: list[int]) -> str:
        request_id = self._new_id()
        self.cache.admit(request_id, namespace, prompt)
        self.cache.grow(request_id, len(prompt))
        self.cache.step()
        return request_id

    @rule(namespace=namespaces, prompt=prompts)
    def match(self, namespace: str, prompt: list[int]) -> None:
        found = self.cache.match(namespace, prompt)
        self.remembered = [*self.remembered[-3:], (namespace, prompt, found)]

    @rule(target=residents, index=st.integers(0, 3))
    def admit_remembered(self, index: int) -> str:
        request_id = self._new_id()
        if not self.remembered:
            self.cache.admit(request_id, "a", [0])
            return request_id
        namespace, prompt, found = self.remembered[index % len(self.remembered)]
        self.cache.admit(request_id, namespace, prompt, known=found)
        return request_id

    @rule(request_id=residents, num_tokens=st.integers(1, 12))
    def grow(self, request_id: str, num_tokens: int) -> None:
        self.cache.grow(request_id, num_tokens)

    @rule(request_id=residents, sampled=tokens)
    def append(self, request_id: str, sampled: list[int]) -> None:
        request = self.cache.requests[request_id]
        request.token_ids = request.token_ids + sampled

    @rule()
    def forward(self) -> None:
        self.cache.forward()

    @rule()
    def step(self) -> None:
        self.cache.step()

    @rule(request_id=residents)
    def commit(self, request_id: str) -> None:
        self.cache.commit(request_id)

    @rule(target=residents, parent_id=residents, back=st.integers(0, 5), tail=tokens)
    def fork(self, parent_id: str, back: int, tail: list[int]) -> str:
        request_id = self._new_id()
        num_tokens = max(0, self.cache.requests[parent_id].num_computed - back)
        self.cache.fork(parent_id, request_id, num_tokens, tail)
        return request_id

    @rule(target=residents, parent_id=residents, tail=tokens)
    def branch(self, parent_id: str, tail: list[int]) -> str:
        """Fork where the parent stands and let the child go on at once, then the parent."""
        request_id = self._new_id()
        parent = self.cache.requests[parent_id]
        self.cache.fork(parent_id, request_id, parent.num_computed, [2, *tail])
        parent.token_ids = [*parent.token_ids, 3]
        self.cache.grow(request_id, 1)
        self.cache.grow(parent_id, 1)
        return request_id

    @rule(request_id=residents, back=st.integers(1, 5), tail=tokens)
    def rewind(self, request_id: str, back: int, tail: list[int]) -> None:
        request = self.cache.requests[request_id]
        if request.end == request.num_computed:
            self.cache.rewind(request_id, max(0, request.num_computed - back), tail)

    @rule(target=residents)
    def fill(self) -> str:
        """Take every block that is available, so that the next growth is refused."""
        request_id = self._new_id()
        size = self.cache.kv.num_available * BLOCK_SIZE
        self.cache.admit(request_id, "filler", [self.num_admitted] * (size + 1))
        assert self.cache.grow(request_id, size)
        assert self.cache.kv.num_available == 0
        return request_id

    @rule(request_id=consumes(residents))
    def free(self, request_id: str) -> None:
        self.cache.free(request_id)

    @invariant()
    def holds(self) -> None:
        self.cache.check()

    def teardown(self) -> None:
        for request_id in list(self.cache.requests):
            self.cache.free(request_id)
        self.cache.check_idle()


def test_tables_spell_their_tokens_g7_g8_g11() -> None:
    run_state_machine_as_test(
        CacheMachine,
        settings=settings(WALK, max_examples=250),
    )


@pytest.mark.parametrize("broken", BROKEN_CACHES)
def test_the_machine_notices_a_broken_cache(broken: Callable[[int, int], KVCache]) -> None:
    class BrokenMachine(CacheMachine):
        def __init__(self) -> None:
            super().__init__(broken)

        def teardown(self) -> None:
            """A broken cache is not asked to end well: the walk itself has to notice."""

    with pytest.raises((AssertionError, ValueError)):
        run_state_machine_as_test(
            BrokenMachine,
            settings=settings(
                WALK,
                max_examples=2000,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                report_multiple_bugs=False,
            ),
        )
