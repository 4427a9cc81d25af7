"""Which item comes first, when items may also leave from the middle?

A binary heap that knows where each item stands, so that removal is as cheap as popping and leaves
nothing behind. The order is total: by key, then by sequence number; items are never compared as
long as sequence numbers differ.
"""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class IndexedHeap(Generic[Item]):
    """Items ordered by (key, sequence), smallest first; every change costs O(log n)."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Item]] = []
        self._position: dict[Item, int] = {}

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._entries)

    def __contains__(self, item: object) -> bool:
        """Return whether `item` is held."""
        return item in self._position

    def push(self, item: Item, key: float, sequence: int) -> None:
        """Add `item`, or move it when it is already held."""
        position = self._position.get(item)
        if position is None:
            position = len(self._entries)
            self._entries.append((key, sequence, item))
            self._position[item] = position
        self._place((key, sequence, item), position)

    def peek(self) -> tuple[float, int, Item] | None:
        """Return the first (key, sequence, item), or None."""
        return self._entries[0] if self._entries else None

    def place_of(self, item: Item) -> tuple[float, int] | None:
        """Return the (key, sequence) under which `item` is held, or None."""
        position = self._position.get(item)
        return None if position is None else self._entries[position][:2]

    def pop(self) -> Item | None:
        """Take out the first item and return it, or None."""
        if not self._entries:
            return None
        item = self._entries[0][2]
        self.remove(item)
        return item

    def remove(self, item: Item) -> bool:
        """Take out `item`; return whether it was held."""
        position = self._position.pop(item, None)
        if position is None:
            return False
        last = self._entries.pop()
        if position < len(self._entries):
            self._place(last, position)
        return True

    def in_order(self) -> Iterator[tuple[float, int, Item]]:
        """Yield (key, sequence, item), first to last, without changing anything.

        The first k cost O(k log k), however many there are. The heap must not change meanwhile.
        """
        frontier = [(self._entries[0], 0)] if self._entries else []
        while frontier:
            entry, position = heappop(frontier)
            yield entry
            for child in (2 * position + 1, 2 * position + 2):
                if child < len(self._entries):
                    heappush(frontier, (self._entries[child], child))

    def _place(self, entry: tuple[float, int, Item], position: int) -> None:
        """Put `entry` where it belongs, starting from the free place at `position`.

        Whatever does not rise sinks to the bottom and rises from there: most entries belong near
        it, and a level on the way down then costs one comparison, not two.
        """
        entries, where = self._entries, self._position
        if position == 0 or entries[(position - 1) >> 1] < entry:
            size = len(entries)
            while (child := 2 * position + 1) < size:
                below = entries[child]
                if child + 1 < size and entries[child + 1] < below:
                    child += 1
                    below = entries[child]
                entries[position] = below
                where[below[2]] = position
                position = child
        while position > 0 and entry < (above := entries[(position - 1) >> 1]):
            entries[position] = above
            where[above[2]] = position
            position = (position - 1) >> 1
        entries[position] = entry
        where[entry[2]] = position

    def check_integrity(self) -> None:
        """Raise AssertionError when order or positions are off. Linear; for tests."""
        assert len(self._position) == len(self._entries), "an item is lost or held twice"
        for position, entry in enumerate(self._entries):
            assert self._position[entry[2]] == position, f"{entry[2]} is not where it should be"
            assert position == 0 or not entry < self._entries[(position - 1) // 2], "out of order"
