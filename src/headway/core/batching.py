"""What does this step compute?

Tiers are served strictly by rank, each with what `budget.py` leaves it of the step's tokens and
time: first the decodes that are due, then tier by tier decodes, prefills of residents, admissions;
what is left goes to those cut short. Compute pressure parks, which loses nothing; only a lack of
slots or blocks preempts (`preemption.py`).
"""

from collections.abc import Sequence
from itertools import chain

from headway.core.budget import StepBudget
from headway.core.draft import Draft, admitted
from headway.core.overtaking import Overtaking
from headway.core.step import Candidate, Item, Match, StepInput, StepLimits, StepPlan, Wait
from headway.core.turns import by_turn
from headway.core.whole_prompt import kept_for_heads, paid_by_floors


def plan_step(step: StepInput, limits: StepLimits) -> StepPlan:
    """Return what to preempt, admit and compute. Asks `step.memory`, changes nothing.

    1. Tokens stay within `max_num_batched_tokens`, slots within `max_num_seqs`, blocks within what
       is available; only a whole prompt (chunking off) may exceed the tokens, beside floors.
    2. (G2) The first candidate of the most urgent tier is in the plan, unless its own tier, a
       protected resident or an overdue floor holds the slot or the blocks that it needs, or it fits
       only whole and not beside them. A floor that is overdue and does not fit is left room for.
    3. (G4) Victims are as in `preemption.py`; none of them is in the plan.
    4. (G6) The plan is empty only if there is neither a candidate nor a resident with work.
    5. Decodes and prefills that were parked longest go first in their tier.
    """
    return _Planner(step, limits).plan()


class _Planner:
    def __init__(self, step: StepInput, limits: StepLimits) -> None:
        ranks = range(len(limits.tiers))
        self._decodes, self._prefills = by_turn(step.residents, len(ranks))
        self._kept = kept_for_heads(step, limits)
        self.budget = StepBudget(step, limits, self._decodes, self._prefills, self._kept)
        by_rank = [[*both] for both in map(chain, self._decodes, self._prefills)]
        self.draft = Draft(step, limits, self.budget, by_rank)
        self._limits, self._ranks = limits, ranks
        self._step, self._waiting, self._owed = step, step.waiting, step.owed
        self._overtaking = Overtaking(limits, step.owed)
        self._overdue: Sequence[Candidate] = ()
        self._halved: set[int] = set()
        self._prefilled = False

    def plan(self) -> StepPlan:
        if not self._limits.may_exceed_tokens:
            self._pay_whole_prompts()
        for rank in self._ranks:
            may_wait = self._kept[rank] is not None and self.budget.waits_for_prompts(rank)
            self._serve_decodes(rank, only_due=may_wait)
        for rank in self._owed:
            self._admit(rank, overdue=True)
            if self._overtaking.held_from <= rank:
                self._overdue = self._overtaking.hold_for_exhausted()
        if self._limits.may_exceed_tokens:
            self._pay_whole_prompts()
        for rank in self._ranks:
            self._serve_decodes(rank)
            self._serve_prefills(rank)
            self._admit(rank)
            self.budget.end_turn(rank)
        for rank in self._ranks:
            self._serve_decodes(rank)
            self._serve_prefills(rank, last_turn=True)
        self.draft.compute_something()
        for resident in chain(*self._decodes, *self._prefills):
            if resident.sequence_id in self.draft.residents:
                self.draft.waits.setdefault(resident.sequence_id, Wait.TOKENS)
        return self.draft.finish(self._overtaking.counts)

    # -- residents ------------------------------------------------------------------------------

    def _serve_decodes(self, rank: int, *, only_due: bool = False) -> None:
        """Plan the decodes of a tier that fit, longest without a turn first.

        Those are due that would be late after this step and another one as long.
        """
        if not (pending := self._decodes[rank]):
            return
        budget, draft = self.budget, self.draft
        tokens, unbounded, room_s = budget.for_decodes(rank)
        base_s, context_s = budget.cost.slice_s(1, 0), budget.cost.decode_context_s
        items, preempted, may_grow = draft.items, draft.preempted, draft.room.promised
        parked, num_planned, planned_s = [], 0, 0.0
        for resident in pending:
            sequence_id, num_computed = resident.sequence_id, resident.num_computed
            if sequence_id in preempted:
                continue
            seconds = base_s + context_s * num_computed
            fits = num_planned < tokens and (num_planned < unbounded or seconds <= room_s)
            parks = not fits or (only_due and resident.due_s >= 2 * budget.total_s)
            if parks or (sequence_id in may_grow and not draft.find_blocks(resident, 1)):
                parked.append(resident)
                continue
            # Hundreds a step: as a tuple, an item is made in half the time.
            items[sequence_id] = tuple.__new__(Item, (sequence_id, 1, num_computed, False, None))
            num_planned += 1
            planned_s += seconds
            room_s -= seconds
        self._decodes[rank] = parked
        budget.take(rank, num_planned, planned_s)

    def _serve_prefills(self, rank: int, *, last_turn: bool = False) -> None:
        for resident in self._prefills[rank]:
            item = self.draft.items.get(resident.sequence_id)
            planned = 0 if item is None else item.num_tokens
            num_left = resident.num_left - planned
            if num_left == 0 or resident.sequence_id in self.draft.preempted:
                continue
            context = resident.num_computed + planned
            room = self.budget.for_prompt(rank, num_left, context, planned=planned)
            num_tokens = self._chunk(rank, num_left, room, share=not last_turn)
            seconds = self.budget.cost.slice_s(num_tokens, context, planned=planned)
            if num_tokens > 0 and self.draft.compute(resident, num_tokens, seconds):
                self._prefilled = True

    def _chunk(self, rank: int, num_left: int, room: int, *, share: bool) -> int:
        """Return how many of `num_left` tokens to compute where there is room for `room` of them.

        The first of a tier that does not end in this step leaves half to those behind it, and gets
        back on the last turn what those do not need: a short one never waits for a long one.
        Without chunking a prompt is computed whole, if need be and if it may as the only one.
        """
        if room <= 0 or room == num_left:
            return room
        if not self._limits.enable_chunked_prefill:
            fits = self._limits.may_exceed_tokens or num_left <= self.budget.left
            return num_left if fits and not self._prefilled else 0
        if share and rank not in self._halved:
            self._halved.add(rank)
            return (room + 1) // 2
        return room

    # -- candidates -----------------------------------------------------------------------------

    def _pay_whole_prompts(self) -> None:
        """Admit whom floors have saved up for; before all decodes where it must fit beside them."""
        may_exceed = self._limits.may_exceed_tokens and not self._prefilled
        paid = paid_by_floors(self._step, self._limits, self.draft, may_exceed=may_exceed)
        for candidate, match in paid:
            if candidate.protected and not self.draft.room.may_protect(candidate):
                self.draft.waits[candidate.sequence_id] = Wait.HELD
            elif candidate.rank < self._overtaking.held_from:
                self._admit_on(candidate, match, candidate.num_tokens - match.num_tokens)

    def _admit(self, rank: int, *, overdue: bool = False) -> None:
        """Admit candidates of a tier while there is room, looking past a few that do not fit, and
        past whoever waits for its share of what the protected hold.

        Only the `overdue` go before more urgent tiers, and then within the floor of theirs.
        """
        looked_past, overtaking = 0, self._overtaking
        for candidate in self._waiting[rank].in_order() if rank < overtaking.held_from else ():
            if candidate.sequence_id in self.draft.items:
                continue
            if overdue and not overtaking.is_exhausted(candidate):
                return
            wait = self._try_to_admit(candidate, overdue=overdue)
            if wait is not None:
                self.draft.waits[candidate.sequence_id] = wait
                looked_past += not (wait is Wait.HELD and candidate.protected)
                if self.draft.room.could_fit(candidate):
                    overtaking.note_blocked(candidate, wait)
            out_of_room = wait in (Wait.TOKENS, Wait.SLOTS)
            if out_of_room or looked_past >= self._limits.lookahead or rank >= overtaking.held_from:
                return

    def _try_to_admit(self, candidate: Candidate, *, overdue: bool) -> Wait | None:
        rank = candidate.rank
        most = max(1, self.budget.floor(rank)) if overdue else candidate.num_tokens
        if self.budget.for_prompt(rank, 1, 0) == 0:
            return Wait.TOKENS
        room = self.draft.room
        if rank == 0 and not all(room.leaves_room(candidate, c) for c in self._overdue):
            return Wait.HELD
        if candidate.protected and not room.may_protect(candidate):
            return Wait.HELD
        match = self.draft.find_match(candidate)
        more = len(self._waiting[rank]) - self._overtaking.admitted[rank] > 1
        num_left = candidate.num_tokens - match.num_tokens
        tokens = self.budget.for_prompt(rank, min(most, num_left), match.num_tokens)
        num_tokens = self._chunk(rank, num_left, tokens, share=more and not overdue)
        return self._admit_on(candidate, match, num_tokens) if num_tokens else Wait.TOKENS

    def _admit_on(self, candidate: Candidate, match: Match, num_tokens: int) -> Wait | None:
        """Plan the first tokens of a candidate after those matched; else return why not."""
        wait = self.draft.admit(candidate, match, num_tokens)
        if wait is None:
            self._prefilled = True
            self._prefills[candidate.rank].append(admitted(candidate, match))
            self._overtaking.note_admitted(candidate.rank)
        return wait
