"""Does the cache that only counts hold as many blocks as the real one, and find what it kept?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import OutOfBlocksError
from headway.kv.cache import KVCache
from headway.sim.counted_tokens import CountedTokens
from headway.sim.counting_kv import CountingKV

SIZE = 4


def admit(kv: CountingKV, name: str, tokens: CountedTokens, namespace: str = "t") -> int:
    """Admit, compute all tokens and commit them; return how many were found."""
    found = kv.match(namespace, tokens)
    cached = kv.admit(name, namespace, tokens, max_cached_tokens=found.num_tokens)
    assert cached == found.num_tokens
    kv.grow(name, cached, len(tokens))
    kv.commit(name, tokens, len(tokens))
    kv.check_integrity()
    return cached


def test_a_prefix_is_held_once_and_found_by_all_of_its_tenant() -> None:
    """G11: another namespace finds nothing."""
    kv = CountingKV(64, SIZE)
    assert admit(kv, "a", CountedTokens(20, "p", 16)) == 0
    assert kv.num_held == 5
    assert admit(kv, "b", CountedTokens(22, "p", 16)) == 16
    assert kv.num_held == 5 + 2
    assert admit(kv, "c", CountedTokens(20, "p", 16), namespace="other") == 0
    assert admit(kv, "d", CountedTokens(20, "q", 16)) == 0
    kv.free("a")
    assert kv.num_held == 4 + 2 + 5 + 5, "b still holds the prefix"
    for name in ("b", "c", "d"):
        kv.free(name)
        kv.check_integrity()
    assert kv.num_held == 0
    assert kv.num_available == 64


def test_what_a_preempted_request_computed_is_found_when_it_comes_back() -> None:
    kv = CountingKV(64, SIZE)
    tokens = CountedTokens(21, "p", 8)
    admit(kv, "a", tokens)
    kv.free("a")
    assert kv.num_cached == 5
    tokens.append(0)
    assert kv.match("t", tokens).num_tokens == 20
    assert admit(kv, "a", tokens) == 20
    kv.free("a")


def test_of_two_that_compute_one_prefix_at_once_one_keeps_its_blocks_to_itself() -> None:
    kv = CountingKV(64, SIZE)
    both = [CountedTokens(20, "p", 16) for _ in range(2)]
    for name, tokens in zip("ab", both, strict=True):
        kv.admit(name, "t", tokens, max_cached_tokens=0)
        kv.grow(name, 0, 20)
    for name, tokens in zip("ab", both, strict=True):
        kv.commit(name, tokens, 20)
        kv.check_integrity()
    assert kv.num_held == 10
    for name in "ab":
        kv.free(name)
        kv.check_integrity()


def test_the_one_unused_for_longest_is_evicted_first_from_its_end() -> None:
    kv = CountingKV(10, SIZE)
    old, new = CountedTokens(16), CountedTokens(16)
    for name, tokens in (("old", old), ("new", new)):
        admit(kv, name, tokens)
        kv.free(name)
    admit(kv, "big", CountedTokens(16))
    assert kv.num_free == 0
    old.append(0)
    new.append(0)
    assert kv.match("t", old).num_tokens == 8, "its last two blocks are gone"
    assert kv.match("t", new).num_tokens == 16
    kv.admit("more", "t", CountedTokens(36), max_cached_tokens=0)
    with pytest.raises(OutOfBlocksError, match="needs 9 blocks, 6 are available"):
        kv.grow("more", 0, 36)


def test_two_tables_show_equal_numbers_only_for_shared_blocks() -> None:
    kv = CountingKV(64, SIZE)
    admit(kv, "a", CountedTokens(20, "p", 16))
    admit(kv, "b", CountedTokens(24, "p", 16))
    first, second = set(kv.block_table("a")), set(kv.block_table("b"))
    assert (len(first), len(second), len(first & second)) == (5, 6, 4)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 20)), max_size=12), st.data())
def test_it_counts_as_the_real_cache_does_where_nothing_is_shared(
    lengths: list[tuple[int, int]], data: st.DataObject
) -> None:
    """G7: free, held and cached are the same after every admission, growth and end."""
    counting, real = CountingKV(4096, SIZE), KVCache(4096, SIZE)
    alive: dict[str, tuple[CountedTokens, list[int]]] = {}
    for number, (prompt, more) in enumerate(lengths):
        name = f"r{number}"
        tokens, ids = CountedTokens(prompt), [1000 * number + n for n in range(prompt)]
        alive[name] = tokens, ids
        counting.admit(name, "t", tokens, max_cached_tokens=0)
        real.admit(name, "t", ids, max_cached_tokens=0)
        tokens.extend([0] * more)
        ids.extend(range(1000 * number + 500, 1000 * number + 500 + more))
        counting.grow(name, 0, len(tokens))
        real.grow(name, 0, len(ids))
        counting.commit(name, tokens, len(tokens))
        real.commit(name, ids, len(ids))
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(alive)))
            del alive[gone]
            counting.free(gone)
            real.free(gone)
        counting.check_integrity()
        for count in ("num_free", "num_held", "num_cached", "num_available"):
            assert getattr(counting, count) == getattr(real, count), count
