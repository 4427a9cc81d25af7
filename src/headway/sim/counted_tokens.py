"""What stands for the tokens of a request whose text nobody knows?"""

from collections.abc import MutableSequence
from typing import Any, overload


class CountedTokens(MutableSequence[int]):
    """Tokens of which only the number is kept, and the last one; all before it read as 0.

    `prefix` names the first `num_prefix_tokens` of them, nothing stands for nobody else's.
    """

    __slots__ = ("_count", "_last", "num_prefix_tokens", "prefix")

    def __init__(self, count: int, prefix: str = "", num_prefix_tokens: int = 0) -> None:
        self._count = count
        self._last = 0
        self.prefix = prefix
        self.num_prefix_tokens = min(num_prefix_tokens, count) if prefix else 0

    def __len__(self) -> int:
        return self._count

    def append(self, value: int) -> None:
        """Add a token."""
        self._count += 1
        self._last = value

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> "CountedTokens": ...
    def __getitem__(self, index: int | slice) -> "int | CountedTokens":
        if isinstance(index, slice):
            return CountedTokens(len(range(*index.indices(self._count))))
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._last if index in (-1, self._count - 1) else 0

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("tokens are only appended to")

    def __delitem__(self, index: Any) -> None:
        raise TypeError("tokens are only appended to")

    def insert(self, index: int, value: int) -> None:
        """Refuse: tokens are only appended to."""
        raise TypeError("tokens are only appended to")
