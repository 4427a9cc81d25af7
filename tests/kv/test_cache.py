"""Does each call of the cache do what its line says, and refuse what it cannot?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import OutOfBlocksError
from headway.kv.cache import KVCache
from headway.kv.prefix_cache import PrefixMatch

from .counting_tokens import CountingTokens
from .mirrored_cache import MirroredCache

SIZE = 4


def computed(kv: KVCache, request_id: str, namespace: str, token_ids: list[int]) -> int:
    """Admit, compute and commit all of `token_ids`. Returns how many were cached."""
    cached = kv.admit(request_id, namespace, token_ids, max_cached_tokens=len(token_ids))
    kv.grow(request_id, cached, len(token_ids))
    kv.commit(request_id, token_ids, len(token_ids))
    return cached


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 1), max_size=20),
    st.lists(st.integers(0, 1), max_size=20),
    st.sampled_from(["a", "b"]),
)
def test_match_finds_exactly_the_common_whole_blocks(
    cached: list[int], asked: list[int], namespace: str
) -> None:
    """Nothing is evicted here, so all that is common is found, less the last token."""
    kv = KVCache(10, SIZE)
    computed(kv, "r", "a", cached)
    kv.free("r")
    common = 0
    while common < min(len(cached), len(asked)) and cached[common] == asked[common]:
        common += 1
    usable = max(0, min(common, len(asked) - 1)) if namespace == "a" else 0
    expected = usable // SIZE
    assert kv.match(namespace, asked) == PrefixMatch(expected * SIZE, expected)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9])
def test_a_full_hit_still_computes_a_token(length: int) -> None:
    kv = KVCache(10, SIZE)
    token_ids = list(range(length))
    computed(kv, "r1", "a", token_ids)
    assert kv.match("a", token_ids).num_tokens == (length - 1) // SIZE * SIZE
    assert kv.match("a", [*token_ids, 99]).num_tokens == length // SIZE * SIZE


def test_num_evictable_counts_blocks_without_holder() -> None:
    kv = KVCache(10, SIZE)
    computed(kv, "r1", "a", [1] * 8)
    computed(kv, "r2", "a", [1] * 12)
    kv.free("r2")
    assert kv.match("a", [1] * 13) == PrefixMatch(12, 1)
    kv.free("r1")
    assert kv.match("a", [1] * 13) == PrefixMatch(12, 3)


def test_blocks_that_somebody_is_about_to_hold_are_not_releasable() -> None:
    kv = KVCache(10, SIZE)
    computed(kv, "r", "a", [1] * 8)
    first, second = kv.block_table("r")
    assert kv.releasable(["r"]) == 2
    assert kv.releasable(["r"], {first}) == 1
    assert kv.releasable(["r"], {first, second, 99}) == 0


def test_admit_takes_no_more_than_the_plan_allows() -> None:
    kv = KVCache(10, SIZE)
    token_ids = list(range(13))
    computed(kv, "r1", "a", token_ids)
    for limit, cached in ((-1, 0), (0, 0), (3, 0), (4, 4), (11, 8), (12, 12), (99, 12)):
        assert kv.admit("r2", "a", token_ids, max_cached_tokens=limit) == cached
        assert kv.block_table("r2") == kv.block_table("r1")[: cached // SIZE]
        kv.free("r2")


def test_tail_blocks_are_evicted_before_head_blocks() -> None:
    kv = KVCache(4, SIZE)
    token_ids = list(range(16))
    computed(kv, "old", "a", token_ids)
    kv.free("old")
    for num_taken in range(1, 5):
        kv.admit("new", "b", [0] * 17, max_cached_tokens=0)
        kv.grow("new", 0, num_taken * SIZE)
        assert kv.match("a", [*token_ids, 0]).num_tokens == 16 - num_taken * SIZE
        kv.free("new")


def test_the_request_used_longest_ago_is_evicted_first() -> None:
    kv = KVCache(4, SIZE)
    for name, token in (("first", 1), ("second", 2)):
        computed(kv, name, "a", [token] * 8)
        kv.free(name)
    kv.admit("again", "a", [1] * 9, max_cached_tokens=8)
    kv.free("again")
    kv.admit("new", "b", [0] * 9, max_cached_tokens=0)
    kv.grow("new", 0, 8)
    assert kv.match("a", [1] * 9).num_tokens == 8
    assert kv.match("a", [2] * 9).num_tokens == 0


def test_match_then_admit_then_commit_hash_each_block_once() -> None:
    kv = KVCache(40, SIZE)
    head = list(range(80))
    computed(kv, "r1", "a", head)
    tokens = CountingTokens([*head, *range(40)])
    found = kv.match("a", tokens)
    assert tokens.num_read == 84
    assert kv.match("a", tokens, known=found) == found
    assert tokens.num_read == 88
    cached = kv.admit("r2", "a", tokens, max_cached_tokens=found.num_tokens, known=found)
    assert (cached, tokens.num_read) == (80, 88)
    kv.grow("r2", 80, 120)
    for num_computed, num_read in ((81, 88), (88, 96), (88, 96), (91, 96), (120, 128)):
        kv.commit("r2", tokens, num_computed)
        assert tokens.num_read == num_read


def test_a_fork_does_not_hash_the_common_head_again() -> None:
    kv = KVCache(40, SIZE)
    head = list(range(80))
    computed(kv, "parent", "a", head)
    kv.fork("parent", "child", 80)
    kv.grow("child", 80, 84)
    tokens = CountingTokens([*head, *range(4)])
    kv.commit("child", tokens, 84)
    assert tokens.num_read == 4
    assert kv.match("a", [*tokens, 0]).num_tokens == 84


def test_without_prefix_caching_nothing_is_kept_or_found() -> None:
    kv = KVCache(4, SIZE, enable_prefix_caching=False)
    assert computed(kv, "r1", "a", [1] * 8) == 0
    assert kv.match("a", [1] * 9) == PrefixMatch(0, 0)
    kv.free("r1")
    assert (kv.num_free, kv.num_cached) == (4, 0)
    assert computed(kv, "r2", "a", [1] * 8) == 0


def test_a_refused_growth_changes_nothing_b1() -> None:
    kv = KVCache(4, SIZE)
    computed(kv, "parent", "a", [1] * 6)
    kv.fork("parent", "child", 6)
    kv.admit("other", "b", [2] * 9, max_cached_tokens=0)
    kv.grow("other", 0, 8)
    before = [kv.block_table(name) for name in ("parent", "child", "other")]
    assert kv.num_available == 0
    for request_id, num_computed, num_tokens in (("child", 6, 7), ("other", 8, 9)):
        with pytest.raises(OutOfBlocksError, match=f"{request_id} needs 1 blocks, 0 are"):
            kv.grow(request_id, num_computed, num_tokens)
        assert [kv.block_table(name) for name in ("parent", "child", "other")] == before
        kv.check_integrity()
    assert kv.take_copies() == []
    kv.free("other")
    kv.grow("child", 6, 7)
    assert kv.take_copies() == [(before[0][1], kv.block_table("child")[1])]


def test_a_growth_that_needs_two_blocks_and_has_one_takes_none() -> None:
    kv = KVCache(3, SIZE)
    computed(kv, "parent", "a", [1] * 6)
    kv.fork("parent", "child", 6)
    assert kv.blocks_to_grow("child", 6, 9) == 2
    with pytest.raises(OutOfBlocksError):
        kv.grow("child", 6, 9)
    assert (kv.num_available, kv.take_copies()) == (1, [])
    assert kv.block_table("child") == kv.block_table("parent")


def test_forks_of_one_request_all_go_on_in_the_same_step() -> None:
    """n = 4: three copies, and the last holder writes in place."""
    cache = MirroredCache(KVCache(12, SIZE))
    cache.admit("c0", "a", [1] * 6)
    cache.grow("c0", 6)
    cache.step()
    for index in (1, 2, 3):
        cache.fork("c0", f"c{index}", 6, [10 + index] * 4)
    cache.requests["c0"].token_ids = [1] * 6 + [10] * 4
    assert cache.kv.num_held == 2
    for index in range(4):
        assert cache.grow(f"c{index}", 4)
    assert cache.kv.num_held == 1 + 4 * 2
    cache.check()
    cache.step()
    for index in range(4):
        cache.free(f"c{index}")
    cache.check_idle()


def test_a_freed_source_is_not_given_to_another_before_it_is_copied() -> None:
    """The child's copy is owed, the parent leaves, and others want every block there is."""
    cache = MirroredCache(KVCache(4, SIZE))
    cache.admit("parent", "a", [1] * 2)
    cache.grow("parent", 2)
    cache.step()
    cache.fork("parent", "child", 2, [5])
    assert cache.grow("child", 1)
    cache.free("parent")
    cache.admit("other", "b", [2] * 16)
    assert not cache.grow("other", 12)
    assert cache.grow("other", 8)
    cache.check()
    cache.step()
    cache.check()
    assert cache.grow("other", 4), "the source is available once it is copied"


def test_a_fork_of_a_fork_in_one_step_copies_from_the_origin() -> None:
    cache = MirroredCache(KVCache(8, SIZE))
    cache.admit("r1", "a", [1] * 2)
    cache.grow("r1", 2)
    cache.step()
    cache.fork("r1", "r2", 2, [5])
    assert cache.grow("r2", 1)
    cache.fork("r2", "r3", 2, [6])
    assert cache.grow("r3", 1)
    cache.check()
    cache.free("r1")
    cache.step()
    cache.check()


def test_free_is_idempotent_and_other_calls_name_the_absent() -> None:
    kv = KVCache(4, SIZE)
    computed(kv, "r", "a", [1] * 5)
    assert kv.resident("r")
    assert kv.releasable(["r"]) == 2
    for _ in range(2):
        kv.free("r")
        assert not kv.resident("r")
        assert (kv.num_free, kv.num_cached, kv.num_held) == (3, 1, 0)
    for call in (kv.block_table, kv.releasable):
        with pytest.raises(KeyError, match="r"):
            call("r")
    with pytest.raises(KeyError):
        kv.grow("r", 0, 1)
    with pytest.raises(KeyError):
        kv.commit("r", [1], 1)
    with pytest.raises(KeyError):
        kv.fork("r", "s", 0)
    kv.check_integrity()


def test_an_id_is_resident_once() -> None:
    kv = KVCache(4, SIZE)
    computed(kv, "r", "a", [1] * 5)
    with pytest.raises(ValueError, match="r is resident already"):
        kv.admit("r", "a", [1], max_cached_tokens=0)
    with pytest.raises(ValueError, match="r is resident already"):
        kv.fork("r", "r", 4)
    kv.check_integrity()


def test_a_block_table_is_what_it_was_when_asked() -> None:
    kv = KVCache(4, SIZE)
    kv.admit("r", "a", [1] * 9, max_cached_tokens=0)
    kv.grow("r", 0, 4)
    table = kv.block_table("r")
    kv.grow("r", 4, 8)
    assert len(table) == 1
    assert list(table) == list(kv.block_table("r"))[:1]


def test_commit_of_tokens_that_the_block_does_not_hold_is_refused() -> None:
    """A fork that claims a block of its parent as its own without having computed it."""
    kv = KVCache(4, SIZE)
    computed(kv, "parent", "a", [1] * 8)
    kv.fork("parent", "child", 6)
    with pytest.raises(ValueError, match="holds other tokens"):
        kv.commit("child", [1] * 6 + [2] * 2, 8)
    kv.check_integrity()


def test_sizes_below_one_are_refused() -> None:
    for num_blocks, block_size in ((0, 4), (4, 0), (-1, 4)):
        with pytest.raises(ValueError, match="must be at least 1"):
            KVCache(num_blocks, block_size)
