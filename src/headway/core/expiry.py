"""Which request leaves the queue unserved first, and when?

A tier limits the time of all its requests alike, so they expire in the order in which they came:
one that expires no sooner than those before it stands in its lane's line, which finds nothing by
comparing. Only those with a sooner deadline of their own have to be sorted.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

from headway.core.sorted_items import SortedItems

Expiring = tuple[float, int, str]
"""When, number among all, request."""


class Expiry:
    """The time limits of what waits; of two at the same time, that which was added first."""

    def __init__(self, num_lanes: int) -> None:
        self.first: Expiring | None = None
        """The one that expires first, or None."""
        self._lines: list[OrderedDict[str, Expiring]] = [OrderedDict() for _ in range(num_lanes)]
        self._sooner: SortedItems[str] = SortedItems()
        self._number = 0

    def __iter__(self) -> Iterator[str]:
        """Yield the requests, in no order."""
        lines = chain.from_iterable(self._lines)
        return chain(lines, (request_id for _, _, request_id in self._sooner.in_order()))

    def add(self, request_id: str, lane: int, at: float) -> None:
        """Let a request that joined the lane expire at `at`."""
        self._number += 1
        entry = (at, self._number, request_id)
        line = self._lines[lane]
        if not line or at >= next(reversed(line.values()))[0]:
            line[request_id] = entry
        else:
            self._sooner.push(request_id, at, self._number)
        if self.first is None or at < self.first[0]:
            self.first = entry

    def remove(self, request_id: str, lane: int) -> None:
        """Forget a request, known or not, that joined the lane."""
        if self._lines[lane].pop(request_id, None) is None:
            self._sooner.remove(request_id)
        if self.first is not None and self.first[2] == request_id:
            firsts = [next(iter(line.values())) for line in self._lines if line]
            if self._sooner.first is not None:
                firsts.append(self._sooner.first)
            self.first = min(firsts, default=None)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        all_of_them = list(self._sooner.in_order())
        for line in self._lines:
            assert list(line.values()) == sorted(line.values()), "a line is out of order"
            all_of_them += line.values()
        assert self.first == min(all_of_them, default=None), "another one is first"
        self._sooner.check_integrity()
