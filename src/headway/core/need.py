"""How much has to leave a queue so that one more fits?"""

from collections.abc import Iterable
from typing import NamedTuple


class Need(NamedTuple):
    """So many requests and tokens: held, allowed or in the way. False when there is nothing."""

    requests: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        """Return whether it is more than nothing."""
        return self.requests > 0 or self.tokens > 0

    def less(self, leaving: Iterable[int]) -> "Need":
        """Return what is left once requests of so many tokens each have left."""
        requests, tokens = self.requests, self.tokens
        for of_one in leaving:
            requests, tokens = requests - 1, tokens - of_one
        return Need(max(0, requests), max(0, tokens))

    def or_more(self, other: "Need") -> "Need":
        """Return the larger of both, each by its own measure."""
        return Need(max(self.requests, other.requests), max(self.tokens, other.tokens))


NOTHING = Need()


def shortage(requests: int, tokens: int, more_tokens: int, bounds: Need) -> Need:
    """Return by how much so many requests and tokens, and one more request, exceed the bounds.

    One that exceeds them alone may wait alone.
    """
    requests_over = requests + 1 - bounds.requests
    tokens_over = tokens + more_tokens - bounds.tokens
    if requests == 0 or (requests_over <= 0 and tokens_over <= 0):
        return NOTHING
    return Need(max(0, requests_over), max(0, tokens_over))
