"""Does a table get exactly the blocks that its next tokens need?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kv.block_table import BlockTable
from headway.kv.shared_blocks import SharedBlocks

SIZE = 4


def empty_table(shared: SharedBlocks) -> BlockTable:
    return BlockTable(shared, SIZE, "a", ())


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=8))
def test_growth_takes_just_enough_blocks(steps: list[int]) -> None:
    shared = SharedBlocks(20, SIZE)
    table, num_computed = empty_table(shared), 0
    for num_new in steps:
        num_tokens = num_computed + num_new
        need = table.blocks_to_grow(num_computed, num_tokens)
        held = len(table.blocks)
        table.grow(num_computed, num_tokens)
        assert len(table.blocks) == held + need
        assert num_tokens <= table.capacity < num_tokens + SIZE
        num_computed = num_tokens
    table.check_integrity()


@pytest.mark.parametrize("num_computed", range(9))
def test_a_fork_goes_on_in_a_copy_of_the_partly_filled_block_only(num_computed: int) -> None:
    shared = SharedBlocks(8, SIZE)
    parent = empty_table(shared)
    parent.grow(0, 8)
    child = parent.fork(num_computed)
    expected = parent.blocks[: -(-num_computed // SIZE)]
    assert child.blocks == expected
    is_partial = num_computed % SIZE > 0
    num_new = -(-9 // SIZE) - len(expected)
    assert child.blocks_to_grow(num_computed, 9) == num_new + is_partial
    child.grow(num_computed, 9)
    num_full = num_computed // SIZE
    assert child.blocks[:num_full] == parent.blocks[:num_full]
    assert not set(child.blocks[num_full:]) & set(parent.blocks)
    copies = [(parent.blocks[num_full], child.blocks[num_full])] if is_partial else []
    assert shared.take_copies() == copies
    assert parent.blocks_to_grow(8, 9) == 1
    shared.check_integrity([parent.blocks, child.blocks])


def test_the_parent_that_goes_on_first_gets_the_copy() -> None:
    shared = SharedBlocks(4, SIZE)
    parent = empty_table(shared)
    parent.grow(0, 2)
    child = parent.fork(2)
    parent.grow(2, 3)
    child.grow(2, 3)
    assert shared.take_copies() == [(child.blocks[0], parent.blocks[0])]


def test_computing_anew_from_a_block_edge_copies_nothing() -> None:
    shared = SharedBlocks(4, SIZE)
    parent = empty_table(shared)
    parent.grow(0, 8)
    child = parent.fork(8)
    child.grow(4, 8)
    assert child.blocks[0] == parent.blocks[0]
    assert child.blocks[1] != parent.blocks[1]
    assert shared.take_copies() == []


def test_a_block_written_anew_is_not_found_for_its_old_tokens() -> None:
    shared = SharedBlocks(4, SIZE)
    table = empty_table(shared)
    table.grow(0, 8)
    table.commit(list(range(8)), 8)
    table.grow(5, 8)
    assert len(table.keys) == 1
    assert set(shared.prefix.blocks) == {table.blocks[0]}
    table.commit([0, 1, 2, 3, 4, 9, 9, 9], 8)
    assert set(shared.prefix.blocks) == set(table.blocks)


def test_commit_takes_full_blocks_only() -> None:
    shared = SharedBlocks(4, SIZE)
    table = empty_table(shared)
    table.grow(0, 8)
    for num_computed, num_keys in ((3, 0), (4, 1), (7, 1), (8, 2)):
        table.commit(list(range(8)), num_computed)
        assert len(table.keys) == num_keys


def test_impossible_calls_are_refused() -> None:
    shared = SharedBlocks(4, SIZE)
    table = empty_table(shared)
    table.grow(0, 5)
    for num_computed, num_tokens in ((-1, 4), (9, 12), (5, 4)):
        with pytest.raises(ValueError, match="cannot grow"):
            table.grow(num_computed, num_tokens)
    for num_tokens in (-1, 9):
        with pytest.raises(ValueError, match="cannot be shared"):
            table.fork(num_tokens)
    for token_ids, num_computed in ((range(8), 9), (range(3), 4)):
        with pytest.raises(ValueError, match="cannot be computed"):
            table.commit(token_ids, num_computed)
    shared.check_integrity([table.blocks])


def test_release_makes_a_block_findable_whose_twin_is_gone() -> None:
    shared = SharedBlocks(2, SIZE)
    first, second = empty_table(shared), empty_table(shared)
    for table in (first, second):
        table.grow(0, 4)
        table.commit([1, 2, 3, 4], 4)
    first.release()
    assert shared.take() == first.blocks[0]
    assert not shared.prefix.blocks
    second.release()
    assert set(shared.prefix.blocks) == {second.blocks[0]}


def test_check_integrity_notices_a_block_twice_and_a_key_too_many() -> None:
    table = empty_table(SharedBlocks(4, SIZE))
    table.grow(0, 8)
    table.keys += [b"1", b"2", b"3"]
    with pytest.raises(AssertionError, match="3 keys for 2 blocks"):
        table.check_integrity()
    table.blocks[1] = table.blocks[0]
    with pytest.raises(AssertionError, match="holds a block twice"):
        table.check_integrity()
