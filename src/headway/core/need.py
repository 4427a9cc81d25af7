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

    def beyond(self, bounds: "Need", tokens: int) -> "Need":
        """Return by how much this and one more request of `tokens` exceed `bounds`.

        One that exceeds them alone may wait alone.
        """
        if self.requests == 0:
            return NOTHING
        requests = self.requests + 1 - bounds.requests
        return Need(max(0, requests), max(0, self.tokens + tokens - bounds.tokens))

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
