"""Are the runs a sorted collection whose items may leave from anywhere, at O(log n)?"""

from collections.abc import Callable
from functools import partial
from itertools import islice
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core import sorted_items
from headway.core.sorted_items import SortedItems

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["push", "pop", "remove"]), st.integers(0, 20), st.integers(0, 5))
)


@given(OPERATIONS, st.sampled_from([2, 3, sorted_items.MAX_RUN]))
def test_it_agrees_with_a_sorted_list(operations: list[tuple[str, int, int]], max_run: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_items, "MAX_RUN", max_run)
        agrees_with_a_sorted_list(operations)


def pop(line: SortedItems[int]) -> int | None:
    """Take out the first item and return it, or None."""
    if line.first is None:
        return None
    item = line.first[2]
    assert line.remove(item)
    return item


def agrees_with_a_sorted_list(operations: list[tuple[str, int, int]]) -> None:
    """Do the same to both and compare them after each operation."""
    line: SortedItems[int] = SortedItems()
    model: dict[int, tuple[float, int]] = {}
    for sequence, (operation, item, key) in enumerate(operations):
        if operation == "push":
            line.push(item, float(key), sequence)
            model[item] = (float(key), sequence)
        elif operation == "remove":
            assert line.remove(item) == (model.pop(item, None) is not None)
        else:
            first = min(model, key=lambda held: model[held], default=None)
            assert pop(line) == first
            if first is not None:
                del model[first]
        line.check_integrity()
        assert len(line) == len(model)
        assert all(item in line for item in model)
        expected = sorted((key, order, held) for held, (key, order) in model.items())
        assert list(line.in_order()) == expected
        assert line.first == (expected[0] if expected else None)


def test_a_crowd_that_leaves_from_the_middle_leaves_nothing_behind() -> None:
    line: SortedItems[int] = SortedItems()
    for item in range(3_000):
        line.push(item, float(item), item)
    for item in range(1_000, 3_000):
        assert line.remove(item)
    line.check_integrity()
    for item in range(999):
        assert pop(line) == item
    line.check_integrity()
    assert list(line.in_order()) == [(999.0, 999, 999)]


class CountedKey(float):
    """A key that counts how often keys are compared."""

    comparisons = 0

    def __lt__(self, other: object) -> bool:
        """Count, then compare."""
        CountedKey.comparisons += 1
        return float.__lt__(self, float(other))  # type: ignore[arg-type]  # keys only meet keys


def comparisons_of(change: Callable[[], object]) -> int:
    """Return how many keys `change` compares."""
    CountedKey.comparisons = 0
    change()
    return CountedKey.comparisons


@pytest.mark.parametrize("size", [1 << 8, 1 << 12, 1 << 15])
def test_each_change_compares_a_logarithmic_number_of_keys(size: int) -> None:
    """I12: counted in comparisons, not in time."""
    line: SortedItems[int] = SortedItems()
    for item in range(size):
        line.push(item, CountedKey((item * 7919) % size), item)
    counts = []
    for item in range(64):
        counts += [
            comparisons_of(partial(line.remove, item * (size // 64))),
            comparisons_of(partial(line.push, size + item, CountedKey(item - 1), size + item)),
            comparisons_of(partial(pop, line)),
        ]
    assert 0 < max(counts) <= 3 * log2(size) + 3


def test_looking_ahead_a_little_compares_little() -> None:
    line: SortedItems[int] = SortedItems()
    for item in range(1 << 14):
        line.push(item, CountedKey((item * 7919) % (1 << 14)), item)
    CountedKey.comparisons = 0
    ahead = line.in_order()
    assert [next(ahead)[0] for _ in range(8)] == list(range(8))
    assert CountedKey.comparisons <= 8 * 16


def test_whoever_has_left_is_met_neither_by_a_reader_nor_by_the_next_change() -> None:
    line: SortedItems[int] = SortedItems()
    size = 1 << 14
    for item in range(size):
        line.push(item, CountedKey(item), item)
    counts = [comparisons_of(partial(line.remove, item)) for item in range(1, size // 2)]
    assert comparisons_of(lambda: list(islice(line.in_order(), 4))) == 0
    assert [pop(line), pop(line)] == [0, size // 2]
    counts += [comparisons_of(partial(pop, line)) for _ in range(size // 2 - 1)]
    assert max(counts) <= 3 * log2(size) + 3
