"""Which blocks must be copied before the next forward pass?

All copies owed are carried out together, before anything is written, in whatever order suits the
runner. So no destination may be a source too: a copy of a block that itself awaits its content is
made from the origin of that content.
"""

from collections import Counter
from collections.abc import Collection, Iterator


class OwedCopies:
    """Copies by destination. Whoever owes one holds its source until it is taken or cancelled."""

    def __init__(self) -> None:
        """Start with nothing owed."""
        self._source_of: dict[int, int] = {}
        self._num_reading: Counter[int] = Counter()

    def owe(self, block: int, destination: int) -> int:
        """Owe `destination` a copy of `block`. Returns the source, to be held by the caller."""
        source = self._source_of.get(block, block)
        self._source_of[destination] = source
        self._num_reading[source] += 1
        return source

    def source_of(self, destination: int) -> int | None:
        """Return the block whose copy is owed to `destination`, or None."""
        return self._source_of.get(destination)

    def num_reading(self, source: int) -> int:
        """Return how many copies are to be made of `source`."""
        return self._num_reading[source]

    def cancel(self, destination: int) -> int | None:
        """Drop the copy owed to `destination`. Returns the source, to be released, or None."""
        source = self._source_of.pop(destination, None)
        if source is not None:
            self._num_reading[source] -= 1
        return source

    def take(self) -> list[tuple[int, int]]:
        """Return all copies as (source, destination), no longer owed; sources are to be released.

        No block is destination twice, or both source and destination: any order is right.
        """
        copies = [(source, destination) for destination, source in self._source_of.items()]
        self._source_of.clear()
        self._num_reading.clear()
        return copies

    def sources(self) -> Iterator[int]:
        """Yield the source of each copy owed, so one that is read twice comes twice."""
        yield from self._source_of.values()

    def check_integrity(self, held: Collection[int]) -> None:
        """Raise AssertionError that names a copy which cannot be made right. `held`: by tables."""
        for destination, source in self._source_of.items():
            if source in self._source_of:
                raise AssertionError(f"block {source} is source and destination of owed copies")
            if destination not in held:
                raise AssertionError(f"a copy is owed to block {destination}, which nobody holds")
        reading = Counter(self.sources())
        if +self._num_reading != reading:
            raise AssertionError(f"copies read {reading}, counted {self._num_reading}")
