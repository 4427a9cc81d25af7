"""What is planned so far, and can one more sequence be added?

Adding a sequence may preempt others, planned ones included: their tokens, blocks and slots are back
at once. A refusal changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from headway.core.budget import StepBudget
from headway.core.predictor import StepFeatures
from headway.core.preemption import Victim, choose_victims, may_preempt
from headway.core.room import Room
from headway.core.step import (
    Candidate,
    Item,
    Match,
    Resident,
    StepInput,
    StepLimits,
    StepPlan,
    Wait,
)

NO_MATCH = Match()


class Draft:
    """A step plan in the making."""

    def __init__(
        self,
        step: StepInput,
        limits: StepLimits,
        budget: StepBudget,
        by_rank: Sequence[Sequence[Resident]],
    ) -> None:
        self.budget = budget
        self.residents = {r.sequence_id: r for r in step.residents}
        """Those of before the step that are not preempted."""
        self.items: dict[str, Item] = {}
        self.preempted: list[str] = []
        self.waits: dict[str, Wait] = {}
        self.room = Room(step, limits, by_rank)
        self._step, self._tiers, self._by_rank = step, limits.tiers, by_rank
        self._parents: set[str | None] = set()

    def finish(self, overtaken: Counter[str]) -> StepPlan:
        """Return the plan."""
        items = self.items
        return StepPlan(
            items=tuple(items.values()),
            preempted=tuple(self.preempted),
            budget_s=self.budget.total_s,
            features=StepFeatures.of([(i.num_tokens, i.start) for i in items.values()]),
            waits={i: wait for i, wait in self.waits.items() if i not in items},
            overtaken=dict(+overtaken),
        )

    # -- residents ------------------------------------------------------------------------------

    def compute(
        self, resident: Resident, num_tokens: int, seconds: float, *, by_force: bool = False
    ) -> bool:
        """Plan `num_tokens` more of a resident, which take `seconds`, or return False."""
        sequence_id = resident.sequence_id
        planned = self.items.get(sequence_id, Item(sequence_id, 0, resident.num_computed))
        item = planned._replace(num_tokens=planned.num_tokens + num_tokens)
        if not self.find_blocks(resident, item.num_tokens, by_force=by_force):
            return False
        self.budget.take(resident.rank, num_tokens, seconds, prompt=resident.num_left > 1)
        self.items[sequence_id] = item
        return True

    def compute_something(self) -> None:
        """If nothing is planned, plan a token of the oldest of the most urgent tier (G6)."""
        if not self.items:
            with_work = (r for r in self.residents.values() if r.num_left > 0)
            oldest = min(with_work, key=attrgetter("rank", "arrival"), default=None)
            if oldest is not None:
                self.compute(oldest, 1, 0.0, by_force=True)

    def find_blocks(self, resident: Resident, num_tokens: int, *, by_force: bool = False) -> bool:
        """Take the blocks in which to compute so many tokens of a resident, or return False.

        `by_force` lets it take those of anybody. One admitted in this step takes nobody's.
        """
        blocks = self.room.to_grow(resident, resident.num_computed + num_tokens)
        if blocks > 0:
            shortage = self.room.shortage_to_grow(resident, blocks)
            if shortage > 0 and (
                resident.sequence_id not in self.residents
                or not self._make_room(resident, shortage, 0, by_force=by_force)
            ):
                self.waits[resident.sequence_id] = Wait.BLOCKS
                return False
            self.room.grow(resident, blocks)
        return True

    # -- candidates -----------------------------------------------------------------------------

    def find_match(self, candidate: Candidate) -> Match:
        """Return what the candidate need not compute, as things stand in this plan."""
        match = self._step.memory.match(candidate.sequence_id)
        return NO_MATCH if match.parent_id in self.preempted else match

    def admit(self, candidate: Candidate, match: Match, num_tokens: int) -> Wait | None:
        """Plan the candidate's first `num_tokens` after those matched; else return why not."""
        shortage = self.room.shortage_to_admit(candidate, match)
        num_slots = self.room.lacking_slots(candidate.rank)
        lacks = shortage > 0 or num_slots > 0
        if lacks and not self._make_room(candidate, shortage, num_slots, match=match):
            return Wait.SLOTS if num_slots > 0 else Wait.BLOCKS
        self.room.admit(candidate, match, match.num_tokens + num_tokens)
        seconds = self.budget.cost.slice_s(num_tokens, match.num_tokens)
        self.budget.take(candidate.rank, num_tokens, seconds, prompt=True)
        self._parents.add(match.parent_id)
        self.items[candidate.sequence_id] = Item(
            candidate.sequence_id, num_tokens, match.num_tokens, True, match.parent_id
        )
        return None

    # -- preemption -----------------------------------------------------------------------------

    def _make_room(
        self,
        requester: Resident | Candidate,
        shortage: int,
        num_slots: int,
        *,
        match: Match = NO_MATCH,
        by_force: bool = False,
    ) -> bool:
        """Preempt until the requester lacks nothing, or change nothing and return False."""
        allowed: Iterable[Resident]
        if by_force:
            allowed = (r for r in self.residents.values() if r is not requester and not r.busy)
        else:
            kept = {match.parent_id, *self._parents}
            if num_slots > 0 or requester.rank > 0:
                kept.update(map(self._anchor, self._step.owed))
            kept.update(self.preempted)
            lowest = requester.rank + isinstance(requester, Candidate)
            others, lacks = chain.from_iterable(self._by_rank[lowest:]), shortage > 0
            allowed = (
                r
                for r in others
                if r.sequence_id not in kept
                and may_preempt(requester, r, self._tiers, is_large=lacks and self._is_large(r))
            )
        victims = choose_victims(
            (Victim(r.sequence_id, r.rank, r.arrival, r.num_computed) for r in allowed),
            lambda sequence_ids: self.room.gain(sequence_ids, requester, match.blocks),
            num_blocks=shortage,
            num_slots=num_slots,
        )
        for victim in victims or ():
            self._preempt(victim)
        return victims is not None

    def _is_large(self, resident: Resident) -> bool:
        return resident.protected and self.room.is_large(resident)

    def _anchor(self, rank: int) -> str | None:
        """Return the anchor of a tier, its oldest resident.

        While the tier is owed, nobody takes the anchor's slot, and only rank 0 its blocks.
        """
        residents = self._by_rank[rank]
        return min(residents, key=attrgetter("arrival")).sequence_id if residents else None

    def _preempt(self, sequence_id: str) -> None:
        self.room.preempt(self.residents.pop(sequence_id))
        self.waits.pop(sequence_id, None)
        self.preempted.append(sequence_id)
        item = self.items.pop(sequence_id, None)
        if item is not None:
            seconds = self.budget.cost.slice_s(item.num_tokens, item.start)
            self.budget.give_back(item.num_tokens, seconds)


def admitted(candidate: Candidate, match: Match) -> Resident:
    """Return what the candidate is once it was admitted on what it matched."""
    c = candidate
    computed = match.num_tokens
    return Resident(
        c.sequence_id, c.rank, c.arrival, c.num_tokens, computed, c.max_num_tokens, -1, c.protected
    )
