"""Are keys equal exactly when namespace and all tokens so far are, and is hashing spared?"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kv.prefix_cache import PrefixCache, PrefixMatch, block_key, root_key

from .counting_tokens import CountingTokens

token_lists = st.lists(st.integers(0, 2), max_size=12)
names = st.text(st.characters(), max_size=4)


def all_keys(cache: PrefixCache, namespace: str, token_ids: Sequence[int]) -> list[bytes]:
    return list(cache.keys_after((), namespace, token_ids))


@settings(deadline=None)
@given(names, token_lists, names, token_lists)
def test_keys_agree_exactly_on_the_common_head_g11(
    namespace: str, token_ids: list[int], other: str, other_ids: list[int]
) -> None:
    cache = PrefixCache(2)
    ours, theirs = all_keys(cache, namespace, token_ids), all_keys(cache, other, other_ids)
    for index, (key, their_key) in enumerate(zip(ours, theirs, strict=False)):
        end = (index + 1) * 2
        same = namespace == other and token_ids[:end] == other_ids[:end]
        assert (key == their_key) == same
    assert len(ours) == len(token_ids) // 2


def test_keys_are_cryptographic_and_roots_are_apart_from_blocks() -> None:
    assert len(root_key("a")) == len(block_key(root_key("a"), [1, 2])) == 32
    assert block_key(b"", []) != root_key("")
    assert block_key(root_key(""), [1, 23]) != block_key(root_key(""), [12, 3])


def test_a_namespace_may_be_any_text() -> None:
    odd = ["", "\0", "\ud800", "\udfff", "a\0", "\ud83d\ude00", "\U0001f600"]
    assert len({root_key(namespace) for namespace in odd}) == len(odd)


def test_find_stops_at_the_first_gap_and_at_the_maximum() -> None:
    cache = PrefixCache(2)
    token_ids = [1, 2, 3, 4, 5, 6]
    keys = all_keys(cache, "a", token_ids)
    cache.insert(keys, [7, 8, 9])
    assert cache.find("a", token_ids, 3) == list(zip(keys, [7, 8, 9], strict=True))
    assert cache.find("a", token_ids, 1) == [(keys[0], 7)]
    assert cache.find("b", token_ids, 3) == []
    cache.forget(8)
    assert cache.find("a", token_ids, 3) == [(keys[0], 7)]
    assert set(cache.blocks) == {7, 9}
    assert 9 in cache
    assert 8 not in cache


def test_a_key_keeps_the_block_it_has() -> None:
    cache = PrefixCache(1)
    [key] = all_keys(cache, "a", [1])
    cache.insert([key], [7])
    cache.insert([key], [8])
    assert cache.find("a", [1], 1) == [(key, 7)]
    assert 8 not in cache
    cache.check_integrity()


def test_a_block_has_one_key_and_a_refused_insert_changes_nothing() -> None:
    cache = PrefixCache(1)
    first, second, third = all_keys(cache, "a", [1, 2, 3])
    cache.insert([first], [7])
    with pytest.raises(ValueError, match="block 7 holds other tokens"):
        cache.insert([second, third], [8, 7])
    assert set(cache.blocks) == {7}
    cache.check_integrity()


def test_forgetting_what_is_unknown_does_nothing() -> None:
    cache = PrefixCache(1)
    cache.forget(3)
    cache.check_integrity()


def test_a_prompt_that_is_not_cached_costs_one_block() -> None:
    tokens = CountingTokens(range(100))
    assert PrefixCache(4).find("a", tokens, 25) == []
    assert tokens.num_read == 4


def test_known_keys_are_looked_up_but_not_hashed_again() -> None:
    cache = PrefixCache(4)
    tokens = CountingTokens(range(100))
    keys = all_keys(cache, "a", tokens)
    cache.insert(keys[:10], range(10))
    known = PrefixMatch(40, 10, "a", tokens, tuple(keys[:10]))
    tokens.num_read = 0
    assert len(cache.find("a", tokens, 25, known)) == 10
    assert tokens.num_read == 4
    cache.forget(3)
    tokens.num_read = 0
    assert len(cache.find("a", tokens, 25, known)) == 3
    assert tokens.num_read == 0


def test_known_keys_of_another_namespace_or_prompt_are_not_used_g11() -> None:
    cache = PrefixCache(1)
    secret = [1, 2, 3]
    keys = all_keys(cache, "a", secret)
    cache.insert(keys, [0, 1, 2])
    known = PrefixMatch(3, 3, "a", secret, tuple(keys))
    assert len(cache.find("a", secret, 3, known)) == 3
    assert cache.find("b", secret, 3, known) == []
    assert cache.find("a", [9, 9, 9], 3, known) == []


def test_check_integrity_notices_two_blocks_with_one_key() -> None:
    class Doubled(PrefixCache):
        def insert(self, keys: Sequence[bytes], blocks: Sequence[int]) -> None:
            for key, block in zip(keys, blocks, strict=True):
                self._block_of[key] = block
                self._key_of[block] = key

    cache = Doubled(1)
    cache.insert([b"k"], [1])
    cache.check_integrity()
    cache.insert([b"k"], [2])
    with pytest.raises(AssertionError, match="1 keys for 2 blocks"):
        cache.check_integrity()
    cache.insert([b"l"], [2])
    with pytest.raises(AssertionError, match="block 1 and its key"):
        cache.check_integrity()
