"""Are the copies owed right in any order, and is nothing owed that is not wanted?"""

import pytest

from headway.kv.copies import OwedCopies


def test_copies_are_taken_once() -> None:
    copies = OwedCopies()
    assert copies.owe(1, 2) == 1
    assert copies.owe(1, 3) == 1
    assert list(copies.sources()) == [1, 1]
    assert copies.num_reading(1) == 2
    assert copies.take() == [(1, 2), (1, 3)]
    assert copies.take() == []
    assert (list(copies.sources()), copies.num_reading(1)) == ([], 0)


def test_a_copy_of_a_copy_is_made_from_the_origin() -> None:
    copies = OwedCopies()
    copies.owe(1, 2)
    assert copies.owe(2, 3) == 1
    assert copies.owe(3, 4) == 1
    assert copies.num_reading(1) == 3
    copies.check_integrity({2, 3, 4})
    assert copies.take() == [(1, 2), (1, 3), (1, 4)]


def test_a_cancelled_copy_gives_its_source_back() -> None:
    copies = OwedCopies()
    copies.owe(1, 2)
    copies.owe(1, 3)
    assert copies.source_of(2) == 1
    assert copies.cancel(2) == 1
    assert copies.cancel(2) is None
    assert copies.source_of(2) is None
    assert copies.num_reading(1) == 1
    assert copies.take() == [(1, 3)]


def test_check_integrity_names_the_copy_that_is_off() -> None:
    copies = OwedCopies()
    copies.owe(1, 2)
    copies.check_integrity({2})
    with pytest.raises(AssertionError, match="block 2, which nobody holds"):
        copies.check_integrity({1})
    copies.owe(5, 1)
    with pytest.raises(AssertionError, match="block 1 is source and destination"):
        copies.check_integrity({1, 2})
