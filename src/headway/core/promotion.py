"""When does work with a deadline move up a tier?

When its *laxity* (the time to its deadline less what it still needs at its own tier's rate) falls
to a margin. It then counts as an arrival of its own tenant in the next tier up: charged there, in
line behind what that tenant's fair share allows, and so at nobody else's expense. Only tiers below
the second are promoted, hence nothing ever becomes critical, and only once.

Each request is looked at when it arrives and then at the earliest time at which its laxity can have
reached the margin; those times are kept in order, so nobody polls.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.core.backlog import QueuedRequest
from headway.core.sorted_items import SortedItems

MARGIN = 0.1
"""Laxity at which a request is promoted, as a share of the time it had from arrival to deadline."""
MIN_MARGIN_S = 0.01
MAX_LOOKS = 16
"""Requests looked at in one call: many that are due at once hold up nobody else."""
SOONEST = 0.125
"""Least time between two looks at one request, in margins, so that they are at most eighty."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a request that may be promoted; costs and times in the caller's units."""

    deadline: float
    margin_s: float
    ahead: float
    """Cost ahead of it in its tier at its arrival."""
    served: float
    """What its tier had been served in all by then."""

    def cost_left(self, served: float) -> float:
        """Return what is still ahead once its tier has been served `served` in all."""
        return max(0.0, self.ahead - (served - self.served))


def target_rank(entry: QueuedRequest) -> int | None:
    """Return the rank that `entry` may be promoted to, or None."""
    rank = entry.rank - 1
    may = entry.deadline is not None and rank >= 1 and entry.highest_rank <= rank
    return rank if may else None


class Promotions:
    """The requests that may be promoted, by the next look; a change costs O(log n) on average."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._looks: SortedItems[str] = SortedItems()
        self._sequence = 0

    def __len__(self) -> int:
        """Return how many may be promoted."""
        return len(self._plans)

    def watch(self, entry: QueuedRequest, ahead: float, served: float, now: float) -> None:
        """Look at a request at once; `ahead` and `served` as in `Plan`."""
        assert entry.deadline is not None, "only a deadline can be missed"
        margin_s = max(MIN_MARGIN_S, MARGIN * (entry.deadline - now))
        self._plans[entry.request_id] = Plan(entry.deadline, margin_s, ahead, served)
        self._look_at(entry.request_id, now)

    def due(self, now: float) -> Iterator[tuple[str, Plan]]:
        """Yield requests to look at now, not all when they are many; each is forgotten or put off
        before the next one.
        """
        for _ in range(MAX_LOOKS):
            first = self._looks.first
            if first is None or first[0] > now:
                return
            yield first[2], self._plans[first[2]]

    def put_off(self, request_id: str, laxity_s: float, now: float) -> None:
        """Look again when the laxity can have reached the margin: were nothing served till then."""
        margin_s = self._plans[request_id].margin_s
        self._look_at(request_id, now + max(laxity_s - margin_s, SOONEST * margin_s))

    def forget(self, request_id: str) -> None:
        """Stop looking at a request, known or not."""
        if self._plans.pop(request_id, None) is not None:
            self._looks.remove(request_id)

    def next_look(self) -> float | None:
        """Return when the next request has to be looked at."""
        first = self._looks.first
        return None if first is None else first[0]

    def _look_at(self, request_id: str, at: float) -> None:
        self._sequence += 1
        self._looks.push(request_id, at, self._sequence)
