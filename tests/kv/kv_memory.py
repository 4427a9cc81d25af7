"""What would the KV memory hold, if a model wrote it?

`KVMemory` stands in for the runner's tensors. KV at a position depends on every token up to it, so
a written slot holds all of those, with the namespace of the request that wrote it: a block taken
over from another context never looks right by accident.
"""

from collections.abc import Sequence

Slot = tuple[str, tuple[int, ...]]


class KVMemory:
    """The content of all slots, by block and offset. None: never written."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: list[list[Slot | None]] = [[None] * block_size for _ in range(num_blocks)]

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Make the copies; asserts that their order does not matter."""
        sources = {source for source, _ in copies}
        destinations = [destination for _, destination in copies]
        assert len(set(destinations)) == len(destinations), f"written twice: {copies}"
        assert not sources & set(destinations), f"source and destination: {copies}"
        for source, destination in copies:
            self._blocks[destination] = list(self._blocks[source])

    def write(
        self, table: Sequence[int], namespace: str, token_ids: Sequence[int], start: int, end: int
    ) -> None:
        """Write the positions `start` to `end` as a forward pass would."""
        for position in range(start, end):
            index, offset = divmod(position, self.block_size)
            content = (namespace, tuple(token_ids[: position + 1]))
            self._blocks[table[index]][offset] = content

    def assert_spells(
        self, table: Sequence[int], namespace: str, token_ids: Sequence[int], num_computed: int
    ) -> None:
        """Assert that the first `num_computed` slots hold these tokens and no others."""
        for position in range(num_computed):
            index, offset = divmod(position, self.block_size)
            found = self._blocks[table[index]][offset]
            expected = (namespace, tuple(token_ids[: position + 1]))
            assert found == expected, (
                f"block {table[index]} offset {offset}: {found}, not {expected}"
            )
