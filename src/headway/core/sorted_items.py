"""Which item comes first, when items may also leave from the middle?

Sorted runs of bounded length: a place is found by bisection, and to make or to close a gap at most
`MAX_RUN` references move, or as many as there are runs when one is cut or empty. What has left is
gone at once. The order is total: by key, then by sequence number; items are never compared as long
as sequence numbers differ.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)
Entry = TypeVar("Entry", bound=tuple[Any, ...])
"""A (key, sequence, item) and whatever else is kept with it."""

MAX_RUN = 2048
"""A run that becomes longer is cut in two."""
HEAD = itemgetter(0)


class SortedEntries(Generic[Entry]):
    """Different entries, smallest first; a change compares O(log n) of them."""

    __slots__ = ("_runs", "first")

    def __init__(self) -> None:
        self.first: Entry | None = None
        """The first entry, or None."""
        self._runs: list[list[Entry]] = []  # none of them empty

    def add(self, entry: Entry) -> None:
        """Let `entry` take its place."""
        runs = self._runs
        if not runs:
            runs.append([])
        at, run = len(runs) - 1, runs[-1]
        if not run or run[-1] < entry:  # as times of arrivals do
            run.append(entry)
        else:
            if at:
                at = self._run_of(entry)
                run = runs[at]
            insort(run, entry)
        if len(run) > MAX_RUN:
            runs[at : at + 1] = [run[: MAX_RUN // 2], run[MAX_RUN // 2 :]]
        self.first = runs[0][0]

    def drop(self, entry: Entry) -> None:
        """Take out `entry`, which is there."""
        runs, at, place = self._runs, 0, 0
        run = runs[0]
        if entry is not self.first:
            if len(runs) > 1:
                at = self._run_of(entry)
                run = runs[at]
            place = bisect_left(run, entry)
        del run[place]
        if not run:
            del runs[at]
        self.first = runs[0][0] if runs else None

    def in_order(self) -> Iterator[Entry]:
        """Yield the entries, first to last, lazily; nothing must change meanwhile."""
        return chain.from_iterable(self._runs)

    def _run_of(self, entry: Entry) -> int:
        return max(0, bisect_right(self._runs, entry, key=HEAD) - 1)

    def check_integrity(self) -> None:
        """Raise AssertionError when something is out of order. Linear; for tests."""
        entries = list(self.in_order())
        assert entries == sorted(entries), "out of order"
        assert all(self._runs), "an empty run is kept"
        assert self.first == next(iter(entries), None), "another one is first"


class SortedItems(SortedEntries[tuple[float, int, Item]], Generic[Item]):
    """Items ordered by (key, sequence), smallest first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[Item, tuple[float, int, Item]] = {}

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self._entries)

    def __contains__(self, item: object) -> bool:
        """Return whether `item` is held."""
        return item in self._entries

    def push(self, item: Item, key: float, sequence: int) -> None:
        """Add `item`, or move it when it is already held."""
        entry = (key, sequence, item)
        before = self._entries.get(item)
        if before == entry:
            return
        if before is not None:
            self.drop(before)
        self._entries[item] = entry
        self.add(entry)

    def remove(self, item: Item) -> bool:
        """Take out `item`; return whether it was held."""
        entry = self._entries.pop(item, None)
        if entry is not None:
            self.drop(entry)
        return entry is not None

    def check_integrity(self) -> None:
        """Raise AssertionError when something is lost or out of order. Linear; for tests."""
        super().check_integrity()
        assert list(self.in_order()) == sorted(self._entries.values()), "one is lost"
