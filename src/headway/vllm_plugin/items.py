"""Where may a chunk end, when an image in the prompt must not be cut in two?"""

from collections.abc import Sequence
from typing import Protocol


class Position(Protocol):
    """What is read of vLLM's `PlaceholderRange`."""

    @property
    def offset(self) -> int:
        """Position of its first token in the prompt."""

    @property
    def length(self) -> int:
        """Its tokens."""


class Item(Protocol):
    """What is read of vLLM's `MultiModalFeatureSpec`."""

    @property
    def mm_position(self) -> Position:
        """Where it stands."""


def whole_items(items: Sequence[Item], start: int, cap: int, longest: int) -> int:
    """Return how many tokens from `start` on to compute: at most `cap`, as far as items allow.

    An item that the chunk would end in is left for the next one. When the chunk begins with it, all
    of it is taken, as long as that is not more than `longest`; else nothing.
    """
    for item in items:
        begin, end = item.mm_position.offset, item.mm_position.offset + item.mm_position.length
        if begin < start + cap < end:
            if begin > start:
                return begin - start
            return end - start if end - start <= longest else 0
    return cap
