"""How much has to leave a queue so that one more fits?"""

from collections.abc import Iterable
from typing import NamedTuple


class Amount(NamedTuple):
    """So many requests and tokens: held, allowed or in the way. False when there is nothing."""

    requests: int = 0
    tokens: int = 0

    def __bool__(self) -> bool:
        """Return whether it is more than nothing."""
        return self.requests > 0 or self.tokens > 0

    def less(self, leaving: Iterable[int]) -> "Amount":
        """Return what is left once requests of so many tokens each have left."""
        requests, tokens = self.requests, self.tokens
        for of_one in leaving:
            requests, tokens = requests - 1, tokens - of_one
        return Amount(max(0, requests), max(0, tokens))

    def beyond(self, other: "Amount") -> "Amount":
        """Return by how much it is more than `other`, each by its own measure."""
        return Amount(max(0, self.requests - other.requests), max(0, self.tokens - other.tokens))

    def or_more(self, other: "Amount") -> "Amount":
        """Return the larger of both, each by its own measure."""
        return Amount(max(self.requests, other.requests), max(self.tokens, other.tokens))


NOTHING = Amount()
UNBOUNDED = Amount(2**63, 2**63)


def shortage(requests: int, tokens: int, more_tokens: int, bounds: Amount) -> Amount:
    """Return by how much so many requests and tokens, and one more request, exceed the bounds.

    One that exceeds them alone may wait alone.
    """
    requests_over = requests + 1 - bounds.requests
    tokens_over = tokens + more_tokens - bounds.tokens
    if requests == 0 or (requests_over <= 0 and tokens_over <= 0):
        return NOTHING
    return Amount(max(0, requests_over), max(0, tokens_over))
