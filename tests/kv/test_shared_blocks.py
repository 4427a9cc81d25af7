"""Is a block written only by its one holder, and does what it held go where it should?"""

import pytest

from headway.errors import OutOfBlocksError
from headway.kv.shared_blocks import SharedBlocks

KEY = b"key"


def test_an_own_block_is_written_in_place_and_forgotten_first() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    shared.prefix.insert([KEY], [block])
    assert shared.writable(block, keep_content=True) == block
    assert block not in shared.prefix
    assert shared.take_copies() == []
    shared.check_integrity([[block]])


def test_a_shared_block_is_replaced_and_stays_findable() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    shared.pool.hold(block)
    shared.prefix.insert([KEY], [block])
    fresh = shared.writable(block, keep_content=True)
    assert fresh != block
    assert block in shared.prefix
    shared.check_integrity([[block], [fresh]])
    assert shared.take_copies() == [(block, fresh)]
    shared.check_integrity([[block], [fresh]])


def test_nothing_is_copied_when_the_whole_block_is_written() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    shared.pool.hold(block)
    assert shared.writable(block, keep_content=False) != block
    assert shared.take_copies() == []


def test_the_last_holder_writes_in_place_though_a_copy_is_owed() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    shared.pool.hold(block)
    fresh = shared.writable(block, keep_content=True)
    assert not shared.is_shared(block)
    assert shared.writable(block, keep_content=True) == block
    assert shared.take_copies() == [(block, fresh)]


def test_the_source_of_a_copy_is_held_until_it_is_taken() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    shared.pool.hold(block)
    fresh = shared.writable(block, keep_content=True)
    shared.release(block)
    with pytest.raises(OutOfBlocksError):
        shared.take()
    shared.check_integrity([[fresh]])
    assert shared.take_copies() == [(block, fresh)]
    assert shared.take() == block


def test_a_destination_let_go_is_owed_nothing_and_frees_the_source() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    shared.pool.hold(block)
    fresh = shared.writable(block, keep_content=True)
    shared.release(block)
    assert shared.releasable({fresh: 1}) == 2
    shared.release(fresh)
    assert shared.pool.num_available == 2
    assert shared.take_copies() == []
    shared.check_integrity([])


def test_a_replaced_destination_leaves_the_others_their_copy() -> None:
    shared = SharedBlocks(3, 4)
    block = shared.take()
    shared.pool.hold(block)
    second = shared.writable(block, keep_content=True)
    shared.pool.hold(second)
    third = shared.writable(second, keep_content=True)
    assert shared.take_copies() == [(block, second), (block, third)]
    shared.check_integrity([[block], [second], [third]])


def test_a_taken_block_is_no_longer_findable() -> None:
    shared = SharedBlocks(1, 4)
    block = shared.take()
    shared.prefix.insert([KEY], [block])
    shared.release(block)
    assert (shared.pool.num_cached, block in shared.prefix) == (1, True)
    assert shared.take() == block
    assert block not in shared.prefix


def test_releasable_counts_only_what_nobody_else_holds() -> None:
    shared = SharedBlocks(3, 4)
    own, common = shared.take(), shared.take()
    shared.pool.hold(common)
    assert shared.releasable({own: 1, common: 1}) == 1


def test_check_integrity_notices_a_lost_holder() -> None:
    shared = SharedBlocks(2, 4)
    block = shared.take()
    with pytest.raises(AssertionError, match=f"block {block} counts 1 holders, has 0"):
        shared.check_integrity([])
