"""Which item comes first, when items may also leave from the middle?

Sorted runs of bounded length: a place is found by bisection, and what moves to make room moves at
the speed of memory. The order is total: by key, then by sequence number; items are never compared
as long as sequence numbers differ.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

MAX_RUN = 512
"""A run that becomes longer is cut in two."""


class SortedItems(Generic[Item]):
    """Items ordered by (key, sequence), smallest first; a change compares O(log n) keys."""

    def __init__(self) -> None:
        self.first: tuple[float, int, Item] | None = None
        """The first (key, sequence, item), or None."""
        self._entries: dict[Item, tuple[float, int, Item]] = {}
        self._runs: list[list[tuple[float, int, Item]]] = [[]]  # only a lone one may be empty
        self._cuts: list[tuple[float, int, Item]] = []  # runs[i] < cuts[i] <= runs[i + 1]

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._entries)

    def __contains__(self, item: object) -> bool:
        """Return whether `item` is held."""
        return item in self._entries

    def push(self, item: Item, key: float, sequence: int) -> None:
        """Add `item`, or move it when it is already held."""
        if item in self._entries:
            self.remove(item)
        entry = self._entries[item] = (key, sequence, item)
        at, run = len(self._cuts), self._runs[-1]
        if run and run[-1] < entry:  # as times of arrivals do
            run.append(entry)
        else:
            at = bisect_right(self._cuts, entry)
            run = self._runs[at]
            insort(run, entry)
        if len(run) > MAX_RUN:
            half = MAX_RUN // 2
            self._runs.insert(at + 1, run[half:])
            self._cuts.insert(at, run[half])
            del run[half:]
        self.first = self._runs[0][0]

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
        entry = self._entries.pop(item, None)
        if entry is None:
            return False
        at = bisect_right(self._cuts, entry) if self._cuts and entry is not self.first else 0
        run = self._runs[at]
        del run[0 if entry is self.first else bisect_left(run, entry)]
        if not run and self._cuts:
            del self._runs[at]
            del self._cuts[max(0, at - 1)]
        self.first = self._runs[0][0] if self._entries else None
        return True

    def in_order(self) -> Iterator[tuple[float, int, Item]]:
        """Yield (key, sequence, item), first to last, lazily; nothing must change meanwhile."""
        return chain.from_iterable(self._runs)

    def check_integrity(self) -> None:
        """Raise AssertionError when something is lost or out of order. Linear; for tests."""
        assert list(self.in_order()) == sorted(self._entries.values()), "lost or out of order"
        assert all(self._runs) or len(self._runs) == 1, "an empty run is kept"
        assert self.first == min(self._entries.values(), default=None), "another one is first"
        assert len(self._cuts) == len(self._runs) - 1, "runs and cuts do not match"
