"""Is the heap a sorted collection whose items may leave from anywhere, at O(log n)?"""

from collections.abc import Callable
from functools import partial
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.sorted_items import SortedItems

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["push", "pop", "remove"]), st.integers(0, 20), st.integers(0, 5))
)


@given(OPERATIONS)
def test_it_agrees_with_a_sorted_list(operations: list[tuple[str, int, int]]) -> None:
    heap: SortedItems[int] = SortedItems()
    model: dict[int, tuple[float, int]] = {}
    for sequence, (operation, item, key) in enumerate(operations):
        if operation == "push":
            heap.push(item, float(key), sequence)
            model[item] = (float(key), sequence)
        elif operation == "remove":
            assert heap.remove(item) == (model.pop(item, None) is not None)
        else:
            first = min(model, key=lambda held: model[held], default=None)
            assert heap.pop() == first
            if first is not None:
                del model[first]
        heap.check_integrity()
        assert len(heap) == len(model)
        assert all(item in heap for item in model)
        expected = sorted((key, order, held) for held, (key, order) in model.items())
        assert list(heap.in_order()) == expected
        assert heap.first == (expected[0] if expected else None)


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
    heap: SortedItems[int] = SortedItems()
    for item in range(size):
        heap.push(item, CountedKey((item * 7919) % size), item)
    counts = []
    for item in range(64):
        counts += [
            comparisons_of(partial(heap.remove, item * (size // 64))),
            comparisons_of(partial(heap.push, size + item, CountedKey(item - 1), size + item)),
            comparisons_of(heap.pop),
        ]
    assert 0 < max(counts) <= 3 * log2(size) + 3


def test_looking_ahead_a_little_compares_little() -> None:
    heap: SortedItems[int] = SortedItems()
    for item in range(1 << 14):
        heap.push(item, CountedKey((item * 7919) % (1 << 14)), item)
    CountedKey.comparisons = 0
    ahead = heap.in_order()
    assert [next(ahead)[0] for _ in range(8)] == list(range(8))
    assert CountedKey.comparisons <= 8 * 16
