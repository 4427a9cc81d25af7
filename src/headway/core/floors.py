"""Which tier is owed?

A floor is a share of service guaranteed to a tier while it is backlogged (mClock: reservation).
Strict priority serves tiers in order; what it withholds from a tier's floor is counted here. At the
gateway a tier that is owed goes first; the engine pays it beside the prompts of more urgent tiers,
as late as the guarantee allows (`budget.py`). Service is in cost units, so time does not come in.
"""

from collections.abc import Sequence
from math import inf, isfinite


class FloorLedger:
    """The deficit of each rank: `max(0, deficit + floor * total - own)` while backlogged, else 0.

    A tier without backlog banks nothing. `quantum` is the least deficit that is acted upon; `most`
    is the largest that is counted.
    Raises ValueError for floors outside [0, 1) or adding up to 1, and for a quantum not above 0.
    """

    def __init__(self, floors: Sequence[float], quantum: float, most: float = inf) -> None:
        if not all(isfinite(floor) and 0 <= floor < 1 for floor in floors) or sum(floors) >= 1:
            raise ValueError(f"floors must be shares that add up to less than 1, got {floors}")
        if not (isfinite(quantum) and quantum > 0):
            raise ValueError(f"quantum must be above 0, got {quantum}")
        self._floors = tuple(floors)
        self._guaranteed = [(rank, floor) for rank, floor in enumerate(floors) if floor > 0]
        self._quantum, self._most = quantum, most
        self.deficits = [0.0] * len(self._floors)
        """What each rank is owed, in cost units; callers only read it."""

    def settle(
        self,
        served: Sequence[float],
        backlogged: Sequence[bool],
        blocked: Sequence[bool] = (),
        content: Sequence[bool] = (),
    ) -> None:
        """Account for service: `served` per rank, while the `backlogged` ranks had work waiting.

        A negative entry takes back what was counted too much. A `blocked` rank had work but could
        not be served whatever the order (no credit, no memory): its deficit stays as it is, so
        that it does not return with a claim that shuts out the tiers above. A `content` rank was
        served all that it could use now and will soon use more, as sequences do that were all in
        this step: its claim does not rise, and falls by what it got beyond its floor. Both may be
        empty: none is.
        """
        deficits, total = self.deficits, sum(served)
        for rank, floor in self._guaranteed:
            deficit = deficits[rank] + (floor * total - served[rank])
            if not backlogged[rank]:
                deficit = min(deficit, deficits[rank]) if content and content[rank] else 0.0
            elif blocked and blocked[rank]:
                continue
            deficits[rank] = min(deficit, self._most) if deficit > 0.0 else 0.0

    def serve(
        self, rank: int, cost: float, backlogged: Sequence[bool], blocked: Sequence[bool] = ()
    ) -> None:
        """Account for service of one rank; otherwise as `settle`."""
        served = [0.0] * len(self._floors)
        served[rank] = cost
        self.settle(served, backlogged, blocked)

    def refund(
        self,
        rank: int,
        over: float,
        actual: float,
        paid: float,
        backlogged: Sequence[bool],
        blocked: Sequence[bool] = (),
    ) -> None:
        """Take back `over`, by which service of `rank` was charged above its `actual` cost.

        `paid` is what the charge took off the claim. The claim rises to what it would be with the
        actual cost, and no higher: a charge that found less to pay off than it cost must not turn
        into a claim that nobody earned.
        """
        most = self.deficits[rank] + max(0.0, paid - (1 - self._floors[rank]) * actual)
        self.serve(rank, -over, backlogged, blocked)
        if self.deficits[rank] > most:
            self.deficits[rank] = most

    def owed(self) -> tuple[int, ...]:
        """Return the ranks with a floor that are owed at least the quantum, the most owed first."""
        deficits, quantum = self.deficits, self._quantum
        owed = [rank for rank, _ in self._guaranteed if deficits[rank] >= quantum]
        if len(owed) > 1:
            owed.sort(key=lambda rank: (-deficits[rank], rank))
        return tuple(owed)
