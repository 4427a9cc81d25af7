"""What is planned so far, and can one more sequence be added?

Adding a sequence may preempt others, planned ones included: their tokens, blocks and slots are back
at once. A refusal changes nothing.
"""

from collections.abc import Container, Iterable, Iterator

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


class Draft:
    """A step plan in the making."""

    def __init__(self, step: StepInput, limits: StepLimits, budget: StepBudget) -> None:
        self.budget = budget
        self.residents = {r.sequence_id: r for r in step.residents}
        self.items: dict[str, Item] = {}
        self.preempted: list[str] = []
        self.waits: dict[str, Wait] = {}
        self.overtaken: dict[str, int] = {}
        self._tiers = limits.tiers
        self._memory = step.memory
        self._room = Room(step, limits)
        self._parents: set[str] = set()
        self._anchors = {_oldest(step, rank) for rank in step.owed}

    def finish(self) -> StepPlan:
        """Return the plan."""
        return StepPlan(
            items=tuple(self.items.values()),
            preempted=tuple(self.preempted),
            budget_s=self.budget.total_s,
            budget_rank=self.budget.rank,
            features=StepFeatures.of(
                (item.num_tokens, self._start(item)) for item in self.items.values()
            ),
            waits={i: wait for i, wait in self.waits.items() if i not in self.items},
            overtaken=self.overtaken,
        )

    def _start(self, item: Item) -> int:
        """Return how many tokens are computed before those of the item."""
        if item.is_admission:
            return item.num_cached
        return self.residents[item.sequence_id].num_computed

    def num_planned(self, sequence_id: str) -> int:
        """Return how many tokens of the sequence are planned."""
        item = self.items.get(sequence_id)
        return 0 if item is None else item.num_tokens

    # -- residents ------------------------------------------------------------------------------

    def compute(
        self, resident: Resident, num_tokens: int, seconds: float, *, by_force: bool = False
    ) -> bool:
        """Plan `num_tokens` more of a resident, which take `seconds`, or return False.

        `by_force` lets it take the blocks of anybody. One admitted in this step takes nobody's.
        """
        sequence_id = resident.sequence_id
        item = self.items.get(sequence_id, Item(sequence_id, 0))
        planned = item.num_tokens + num_tokens
        blocks = self._room.to_grow(resident, resident.num_computed + planned)
        if blocks > 0:
            shortage = self._room.shortage_to_grow(resident, blocks)
            if shortage > 0 and (
                item.is_admission or not self._make_room(resident, shortage, 0, by_force=by_force)
            ):
                self.waits[sequence_id] = Wait.BLOCKS
                return False
            self._room.grow(resident, blocks)
        self.budget.take(resident.rank, num_tokens, seconds, prompt=resident.num_left > 1)
        self.items[sequence_id] = item._replace(num_tokens=planned)
        return True

    # -- candidates -----------------------------------------------------------------------------

    def find_match(self, candidate: Candidate) -> Match:
        """Return what the candidate need not compute, as things stand in this plan."""
        match = self._memory.match(candidate.sequence_id)
        return Match() if match.parent_id in self.preempted else match

    def leaves_room(self, candidate: Candidate, overdue: Iterable[Candidate]) -> bool:
        """Return whether a candidate of rank 0 leaves room for each that is overdue."""
        return all(self._room.leaves_room(candidate, other) for other in overdue)

    def admit(self, candidate: Candidate, match: Match, num_tokens: int) -> Wait | None:
        """Plan the candidate's first `num_tokens` after those matched; else return why not."""
        slots = self._room.slots_for(candidate.rank)
        if slots < 0:
            return Wait.SLOTS
        if candidate.protected and self._room.is_protecting:
            return Wait.BLOCKS
        shortage = self._room.shortage_to_admit(candidate, match)
        if shortage > 0 or slots == 0:
            num_slots = 1 if slots == 0 else 0
            if not self._make_room(candidate, shortage, num_slots, match=match):
                return Wait.BLOCKS if slots else Wait.SLOTS
        self._room.admit(candidate, match, match.num_tokens + num_tokens)
        seconds = self.budget.cost.slice_s(num_tokens, match.num_tokens)
        self.budget.take(candidate.rank, num_tokens, seconds, prompt=True)
        if match.parent_id is not None:
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
        match: Match | None = None,
        by_force: bool = False,
    ) -> bool:
        """Preempt until the requester lacks nothing, or change nothing and return False."""
        allowed: Iterable[Resident]
        if by_force:
            others = (r for r in self.residents.values() if r is not requester)
            allowed = (r for r in others if not r.busy)
        else:
            parent_id = None if match is None else match.parent_id
            anchors = self._anchors if num_slots > 0 or requester.rank > 0 else set()
            allowed = self._preemptible(requester, {parent_id, *anchors, *self._parents})
        victims = choose_victims(
            (Victim(r.sequence_id, r.rank, r.arrival, r.num_computed) for r in allowed),
            lambda sequence_ids: self._room.gain(sequence_ids, requester, match),
            num_blocks=shortage,
            num_slots=num_slots,
        )
        if victims is None:
            return False
        self._preempt(victims)
        return True

    def _preemptible(
        self, requester: Resident | Candidate, kept: Container[str | None]
    ) -> Iterator[Resident]:
        for resident in self.residents.values():
            if resident.sequence_id not in kept and may_preempt(requester, resident, self._tiers):
                yield resident

    def _preempt(self, victims: tuple[str, ...]) -> None:
        self._room.preempt([self.residents[victim] for victim in victims])
        for victim in victims:
            item = self.items.pop(victim, None)
            if item is not None:
                seconds = self.budget.cost.slice_s(item.num_tokens, self._start(item))
                self.budget.give_back(item.num_tokens, seconds)
            del self.residents[victim]
            self.waits.pop(victim, None)
            self.preempted.append(victim)


def admitted(candidate: Candidate, match: Match) -> Resident:
    """Return what the candidate is once it was admitted on what it matched."""
    c = candidate
    computed = match.num_tokens
    return Resident(
        c.sequence_id, c.rank, c.arrival, c.num_tokens, computed, c.max_num_tokens, -1, c.protected
    )


def _oldest(step: StepInput, rank: int) -> str | None:
    """Return the anchor of a tier, its oldest resident.

    While the tier is owed, nobody takes the anchor's slot, and only rank 0 its blocks.
    """
    ages = ((r.arrival, r.sequence_id) for r in step.residents if r.rank == rank)
    return min(ages, default=(0, None))[1]
