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


def whole_items(
    items: Sequence[Item], start: int, cap: int, longest: int, *, lookahead: int = 0
) -> int:
    """Return how many tokens from `start` on to ask vLLM for: at most `cap`, if it computes some.

    vLLM leaves an item that the chunk would end in for the next one, and so the item in which the
    `lookahead` tokens are that a draft model reads behind the chunk. Where nothing is before it, or
    its first tokens were found in the prefix cache, all of it is asked for, as long as that is not
    more than `longest`; else nothing.
    """
    ends = (item.mm_position.offset + item.mm_position.length - start for item in items)
    for asked in (cap, *(end for end in ends if cap < end <= longest)):
        if _is_begun(items, start, asked, lookahead):
            return asked
    return 0


def _is_begun(items: Sequence[Item], start: int, asked: int, lookahead: int) -> bool:
    """Whether something is before the first item that is left, if one is."""
    for item in items:
        begin, end = item.mm_position.offset, item.mm_position.offset + item.mm_position.length
        if begin < start + asked + lookahead and start + asked < end:
            return begin - lookahead > start
    return True
