"""How many tokens does a call read?"""

from typing import SupportsIndex, overload


class CountingTokens(list[int]):
    """A list of tokens that counts how many were read by slice."""

    num_read = 0

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | list[int]:
        if isinstance(index, slice):
            self.num_read += len(range(*index.indices(len(self))))
        return super().__getitem__(index)
