"""How many tokens may a step compute, and for whom are some of them kept?"""

from itertools import islice
from math import ceil

from headway.core.step import StepInput, StepLimits, Waiting

DEAREST_TOKEN = 2.0
"""Price of a decoded token over that of a prefilled one (`cost.Prices`): a floor is a share of
service, counted in price, so it may take this many times its share of the tokens."""


class TokenBudget:
    """The tokens of one step.

    1. The total is `max_num_batched_tokens`, or less while a tier with a latency target has work.
    2. A tier that is owed its floor keeps that share of the tokens, whatever others want.
    3. A decode leaves tokens to the prefills of more urgent tiers that have not had their turn: all
       they want if its own tier promises nothing, at most half if it has a target. It leaves half
       to the started prefills of its tier, and nothing to those not admitted yet.
    """

    def __init__(self, step: StepInput, limits: StepLimits) -> None:
        self._tiers = limits.tiers
        self._started = [0] * len(limits.tiers)
        self._decodes = [0] * len(limits.tiers)
        for resident in step.residents:
            kind = self._decodes if resident.num_left == 1 else self._started
            kind[resident.rank] += resident.num_left
        self._prefills = [
            started + _wanted_by(waiting, limits)
            for started, waiting in zip(self._started, step.waiting, strict=True)
        ]
        self.total, self.rank = _total(step, limits, self._decodes, self._prefills)
        self.left = self.total
        self._floors = self._keep_floors(step.owed)
        self._half = (self.total - sum(self._floors)) // 2

    def _keep_floors(self, owed: tuple[int, ...]) -> list[int]:
        floors = [0] * len(self._tiers)
        for rank in owed:
            share = ceil(DEAREST_TOKEN * self._tiers[rank].floor * self.total)
            wanted = self._decodes[rank] + self._prefills[rank]
            floors[rank] = max(0, min(share, wanted, self.total - 1 - sum(floors)))
        return floors

    def for_decodes(self, rank: int) -> int:
        """Return how many tokens decodes of this tier may take now."""
        urgent, own = sum(self._prefills[:rank]), self._started[rank]
        if self._tiers[rank].active_budget is None:
            kept = urgent + min(own, self._half)
        else:
            kept = min(urgent + own, self._half)
        return max(self.for_prefills(rank) - kept, min(self._floors[rank], self.left))

    def for_prefills(self, rank: int) -> int:
        """Return how many tokens prefills of this tier may take now."""
        others = sum(self._floors) - self._floors[rank]
        return max(0, self.left - others)

    def take(self, rank: int, num_tokens: int) -> None:
        """Spend tokens; first those kept for the tier's floor."""
        self.left -= num_tokens
        self._floors[rank] = max(0, self._floors[rank] - num_tokens)

    def give_back(self, num_tokens: int) -> None:
        """Return the tokens of a sequence that was planned and then preempted."""
        self.left += num_tokens

    def end_turn(self, rank: int) -> None:
        """Keep nothing more for this tier."""
        self._floors[rank] = 0
        self._prefills[rank] = 0


def _wanted_by(waiting: Waiting, limits: StepLimits) -> int:
    if not len(waiting):
        return 0
    return sum(c.num_tokens for c in islice(waiting.in_order(), limits.lookahead))


def _total(
    step: StepInput, limits: StepLimits, decodes: list[int], prefills: list[int]
) -> tuple[int, int | None]:
    total, set_by = limits.max_num_batched_tokens, None
    for rank, tier in enumerate(limits.tiers):
        for applies, budget in (
            (decodes[rank] + prefills[rank] > 0, tier.active_budget),
            (rank in step.recent, tier.recent_budget),
        ):
            if applies and budget is not None and budget < total:
                total, set_by = budget, rank
    return max(1, total), set_by
