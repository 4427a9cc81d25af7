"""Who got how much while several wanted more?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from headway.sim.records import Account, Second

WINDOW_S = 30
JAIN_WINDOW_S = 120
"""Long beside an answer: what a tenant is dispatched for comes with its tokens, in up to 30 s."""


@dataclass(frozen=True, slots=True)
class Jain:
    """Jain index over windows; None where no two tenants were ever backlogged together."""

    mean: float | None = None
    least: float | None = None


def least_share(seconds: Sequence[Second], rank: int) -> float | None:
    """Return the least share of service that a tier got in any `WINDOW_S` seconds in a row.

    Only windows count at the end of each second of which something of the tier waited. None: there
    is no such window.
    """
    own = [0.0, *accumulate(each.service[rank] for each in seconds)]
    total = [0.0, *accumulate(sum(each.service) for each in seconds)]
    idle = [0, *accumulate(each.waiting[rank] == 0 for each in seconds)]
    shares = [
        (own[end] - own[end - WINDOW_S]) / (total[end] - total[end - WINDOW_S])
        for end in range(WINDOW_S, len(seconds) + 1)
        if idle[end] == idle[end - WINDOW_S] and total[end] > total[end - WINDOW_S]
    ]
    return min(shares, default=None)


def jain_index(seconds: Sequence[Second], accounts: Sequence[Account]) -> Jain:
    """Return (sum x)^2 / (n sum x^2) over tenants of a tier, x their service by weight.

    In each window of `JAIN_WINDOW_S`, one after the other, over the tenants that were backlogged in
    all of it; windows with fewer than two do not count.
    """
    starts = range(0, len(seconds) + 1, JAIN_WINDOW_S)
    found = [
        index
        for start, end in pairwise(starts)
        for index in _window_indexes(seconds[start:end], accounts)
    ]
    return Jain(sum(found) / len(found), min(found)) if found else Jain()


def _window_indexes(window: Sequence[Second], accounts: Sequence[Account]) -> list[float]:
    together = frozenset.intersection(*(each.backlogged for each in window))
    by_rank: dict[int, list[float]] = {}
    for number in sorted(together):
        account = accounts[number]
        service = sum(each.accounts.get(number, 0.0) for each in window)
        by_rank.setdefault(account.rank, []).append(service / account.weight)
    return [
        sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
        for shares in by_rank.values()
        if len(shares) > 1 and sum(shares) > 0
    ]
