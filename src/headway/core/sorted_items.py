"""Which item comes first, when items may also leave from the middle?

A heap in which what has left stays until it comes first, or until more than half of it has left:
then it is built anew, so that a change costs O(log n) on average. The order is total: by key, then
by sequence number; items are never compared as long as sequence numbers differ.
"""

from collections.abc import Hashable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Entry = TypeVar("Entry", bound=tuple[Any, ...])
"""A (key, sequence, item) and whatever else is kept with it."""

SPARE = 64
"""Entries that may be there beyond twice those that are held."""


class SortedItems(Generic[Item]):
    """Items ordered by (key, sequence), smallest first."""

    def __init__(self) -> None:
        self.first: tuple[float, int, Item] | None = None
        """The first (key, sequence, item), or None."""
        self._entries: dict[Item, tuple[float, int, Item]] = {}
        self._heap: list[tuple[float, int, Item]] = []

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._entries)

    def __contains__(self, item: object) -> bool:
        """Return whether `item` is held."""
        return item in self._entries

    def push(self, item: Item, key: float, sequence: int) -> None:
        """Add `item`, or move it when it is already held."""
        entries, heap, first = self._entries, self._heap, self.first
        entry = (key, sequence, item)
        before = entries.get(item)
        if before == entry:
            return
        entries[item] = entry
        if before is None or before is not first:
            heappush(heap, entry)
            self.first = heap[0]
            if len(heap) > 2 * len(entries) + SPARE:
                drop_left(heap, entries)
            return
        heapreplace(heap, entry)
        to_first(heap, entries)
        self.first = heap[0]

    def place_of(self, item: Item) -> tuple[float, int] | None:
        """Return the (key, sequence) under which `item` is held, or None."""
        entry = self._entries.get(item)
        return None if entry is None else entry[:2]

    def pop(self) -> Item | None:
        """Take out the first item and return it, or None."""
        if self.first is None:
            return None
        item = self.first[2]
        self.remove(item)
        return item

    def remove(self, item: Item) -> bool:
        """Take out `item`; return whether it was held."""
        entries, heap = self._entries, self._heap
        entry = entries.pop(item, None)
        if entry is None:
            return False
        let_go(entry, heap, entries, len(entries))
        self.first = heap[0] if heap else None
        return True

    def in_order(self) -> Iterator[tuple[float, int, Item]]:
        """Yield (key, sequence, item), first to last, lazily; nothing must change meanwhile."""
        return in_order(self._heap, self._entries)

    def check_integrity(self) -> None:
        """Raise AssertionError when something is lost or out of order. Linear; for tests."""
        assert list(self.in_order()) == sorted(self._entries.values()), "lost or out of order"
        assert self.first == min(self._entries.values(), default=None), "another one is first"
        assert len(self._heap) <= 2 * len(self._entries) + SPARE, "too much of what left is there"


def to_first(heap: list[Entry], held: Mapping[Any, Entry]) -> None:
    """Let an entry come first that is the one held for its item."""
    while heap and held.get(heap[0][2]) is not heap[0]:
        heappop(heap)


def let_go(entry: Entry, heap: list[Entry], held: Mapping[Any, Entry], num_held: int) -> None:
    """Note that an entry is not held any more, of which `num_held` others in the heap are."""
    if heap[0] is entry:
        to_first(heap, held)
    elif len(heap) > 2 * num_held + SPARE:
        drop_left(heap, held)


def drop_left(heap: list[Entry], held: Mapping[Any, Entry]) -> None:
    """Drop every entry that is not the one held for its item."""
    heap[:] = [entry for entry in heap if held.get(entry[2]) is entry]
    heapify(heap)


def in_order(heap: list[Entry], held: Mapping[Any, Entry]) -> Iterator[Entry]:
    """Yield the entries that are held, first to last, the first k at O(k log k) on average."""
    # Whoever comes next is among the children of those that were there.
    upcoming = [(heap[0], 0)] if heap else []
    while upcoming:
        entry, at = upcoming[0]
        child = 2 * at + 1
        if child < len(heap):
            heapreplace(upcoming, (heap[child], child))
            if child + 1 < len(heap):
                heappush(upcoming, (heap[child + 1], child + 1))
        else:
            heappop(upcoming)
        if held.get(entry[2]) is entry:
            yield entry
