"""Is the right block reused first, and do the books balance whatever is done?"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import OutOfBlocksError
from headway.kv.block_pool import BlockPool


def test_free_blocks_go_before_cached_ones() -> None:
    pool = BlockPool(3)
    first, second, third = pool.take(), pool.take(), pool.take()
    pool.release(first, keep=True)
    pool.release(second, keep=False)
    pool.release(third, keep=False)
    assert [pool.take(), pool.take(), pool.take()] == [third, second, first]


def test_cached_blocks_go_oldest_first() -> None:
    pool = BlockPool(4)
    blocks = [pool.take() for _ in range(4)]
    for block in (2, 0, 3, 1):
        pool.release(blocks[block], keep=True)
    assert [pool.take() for _ in range(4)] == [blocks[b] for b in (2, 0, 3, 1)]


def test_a_hit_takes_a_block_out_of_the_middle_and_renews_it() -> None:
    pool = BlockPool(3)
    blocks = [pool.take() for _ in range(3)]
    for block in blocks:
        pool.release(block, keep=True)
    pool.hold(blocks[1])
    pool.hold(blocks[0])
    assert (pool.num_held, pool.num_cached, pool.num_free) == (2, 1, 0)
    pool.release(blocks[1], keep=True)
    pool.release(blocks[0], keep=True)
    assert [pool.take() for _ in range(3)] == [blocks[2], blocks[1], blocks[0]]


def test_a_block_returns_when_its_last_holder_lets_go() -> None:
    pool = BlockPool(1)
    block = pool.take()
    pool.hold(block)
    pool.release(block, keep=True)
    assert (pool.ref_count(block), pool.num_available) == (1, 0)
    pool.release(block, keep=True)
    assert (pool.ref_count(block), pool.num_available) == (0, 1)


def test_wrong_calls_are_refused_and_change_nothing() -> None:
    pool = BlockPool(2)
    block = pool.take()
    other = 1 - block
    with pytest.raises(ValueError, match="nothing to hold"):
        pool.hold(other)
    with pytest.raises(ValueError, match="no holder"):
        pool.release(other, keep=False)
    pool.take()
    with pytest.raises(OutOfBlocksError):
        pool.take()
    pool.check_integrity(Counter([0, 1]), set())
    with pytest.raises(ValueError, match="num_blocks"):
        BlockPool(0)


def test_check_integrity_names_the_block_that_is_off() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.check_integrity(Counter([block]), set())
    with pytest.raises(AssertionError, match=f"block {block} counts 1 holders, has 2"):
        pool.check_integrity(Counter([block, block]), set())
    with pytest.raises(AssertionError, match=f"block {1 - block} without holder"):
        pool.check_integrity(Counter([block]), {1 - block})
    pool.release(block, keep=True)
    with pytest.raises(AssertionError, match=f"block {block} without holder"):
        pool.check_integrity(Counter(), set())


calls = st.tuples(st.sampled_from(["take", "hold", "release", "release_kept"]), st.integers(0, 4))


@settings(deadline=None)
@given(st.lists(calls, max_size=60))
def test_against_plain_lists_g7(made: list[tuple[str, int]]) -> None:
    """The same calls on two lists and a counter: same block taken, same counts."""
    pool = BlockPool(5)
    free, cached, holders = [4, 3, 2, 1, 0], list[int](), Counter[int]()
    for call, block in made:
        if call == "take" and free + cached:
            expected = free.pop() if free else cached.pop(0)
            assert pool.take() == expected
            holders[expected] += 1
        elif call == "hold" and block not in free:
            pool.hold(block)
            holders[block] += 1
            if block in cached:
                cached.remove(block)
        elif call.startswith("release") and holders[block]:
            keep = call == "release_kept"
            pool.release(block, keep=keep)
            holders[block] -= 1
            if holders[block] == 0:
                (cached if keep else free).append(block)
        pool.check_integrity(holders, set(cached))
        assert (pool.num_free, pool.num_cached) == (len(free), len(cached))
        assert pool.num_available == len(free) + len(cached)
        assert pool.num_held == 5 - pool.num_available
        assert [pool.ref_count(b) for b in range(5)] == [holders[b] for b in range(5)]
