"""What does this step compute?

Tiers are served strictly by rank, each with the tokens that `budget.py` leaves it: the decodes of
all tiers, then tier by tier the decodes that may now have more, the prefills of residents and the
admissions; what is left goes to those that were cut short. Compute pressure parks, which loses
nothing; only a lack of slots or blocks preempts (`preemption.py`).
"""

from collections.abc import Iterator

from headway.core.draft import Draft
from headway.core.step import Candidate, Resident, StepInput, StepLimits, StepPlan, Wait


def plan_step(step: StepInput, limits: StepLimits) -> StepPlan:
    """Return what to preempt, admit and compute. Asks `step.memory`, changes nothing.

    1. Tokens stay within the budget, slots within `max_num_seqs`, blocks within what is available;
       only a whole prompt (chunking off) may exceed the budget, as the only prefill.
    2. (G2) The first candidate of the most urgent tier is in the plan, unless its own tier, a
       protected resident or an overdue floor holds the slot or the blocks that it needs. A floor
       that is overdue and does not fit is left room for; tiers between the two wait.
    3. (G4) Victims are as in `preemption.py`; none of them is in the plan.
    4. (G6) The plan is empty only if there is neither a resident nor a candidate.
    5. Decodes and prefills that were parked longest go first in their tier.
    """
    planner = _Planner(step, limits)
    planner.serve()
    return planner.draft.finish()


class _Planner:
    def __init__(self, step: StepInput, limits: StepLimits) -> None:
        self.draft = Draft(step, limits)
        self._limits = limits
        self._ranks = range(len(limits.tiers))
        self._waiting = step.waiting
        self._owed = step.owed
        self._turns = sorted(step.residents, key=lambda r: (r.last_step, r.arrival))
        self._blocked: dict[str, Candidate] = {}
        self._admitted = [0] * len(limits.tiers)
        self._held_from = len(limits.tiers)
        self._overdue: list[Candidate] = []
        self._halved: set[int] = set()
        self._prefilled = False

    def serve(self) -> None:
        for rank in self._ranks:
            self._serve_decodes(rank, last_turn=False)
        for rank in self._overdue_ranks():
            self._admit(rank)
            if self._held_from <= rank:
                self._hold_for_overdue()
        for rank in self._ranks:
            self._serve_decodes(rank, last_turn=False)
            self._serve_prefills(rank, last_turn=False)
            self._admit(rank)
            self.draft.budget.end_turn(rank)
        for rank in self._ranks:
            self._serve_decodes(rank, last_turn=True)
            self._serve_prefills(rank, last_turn=True)
        if not self.draft.items and self.draft.residents:
            oldest = min(self.draft.residents.values(), key=lambda r: (r.rank, r.arrival))
            self.draft.compute(oldest, 1, by_force=True)

    # -- residents ------------------------------------------------------------------------------

    def _of(self, rank: int) -> Iterator[Resident]:
        """Residents of a tier, longest without a turn first; some are preempted meanwhile."""
        for resident in self._turns:
            if resident.rank == rank and resident.sequence_id in self.draft.residents:
                yield resident

    def _serve_decodes(self, rank: int, *, last_turn: bool) -> None:
        budget = self.draft.budget
        for resident in self._of(rank):
            if resident.num_left == 1 and resident.sequence_id not in self.draft.items:
                room = budget.left if last_turn else budget.for_decodes(rank)
                self.draft.compute(resident, min(1, room))

    def _serve_prefills(self, rank: int, *, last_turn: bool) -> None:
        budget = self.draft.budget
        for resident in self._of(rank):
            num_left = resident.num_left - self.draft.num_planned(resident.sequence_id)
            if resident.num_left == 1 or num_left == 0:
                continue
            room = budget.left if last_turn else budget.for_prefills(rank)
            num_tokens = self._chunk(rank, num_left, room, share=not last_turn)
            self.draft.compute(resident, num_tokens)
            self._prefilled = self._prefilled or num_tokens > 0

    def _chunk(self, rank: int, num_left: int, room: int, *, share: bool) -> int:
        """Return how many of `num_left` tokens to compute in `room`.

        The first prefill of a tier that does not end in this step leaves half to those behind it,
        so that a short one never waits for a long one; nobody behind it, it gets the half back on
        the last turn. Without chunking a prompt is computed whole, if need be as the only one.
        """
        if room <= 0 or num_left <= room:
            return num_left if room > 0 else 0
        if not self._limits.enable_chunked_prefill:
            return 0 if self._prefilled else num_left
        if share and rank not in self._halved:
            self._halved.add(rank)
            return (room + 1) // 2
        return room

    # -- candidates -----------------------------------------------------------------------------

    def _overdue_ranks(self) -> list[int]:
        """Tiers owed their floor whose first candidate was overtaken as often as allowed."""
        heads = ((rank, next(self._waiting[rank].in_order(), None)) for rank in self._owed)
        return [rank for rank, head in heads if head is not None and self._is_exhausted(head)]

    def _hold_for_overdue(self) -> None:
        """Admit nobody who would be in the way of those that are overdue and do not fit."""
        self._overdue = [each for each in self._blocked.values() if self._is_exhausted(each)]
        self._held_from = 0 if any(each.rank == 0 for each in self._overdue) else 1

    def _is_exhausted(self, candidate: Candidate) -> bool:
        now = self.draft.overtaken.get(candidate.sequence_id, 0)
        return candidate.overtaken + now >= self._limits.max_overtakes

    def _admit(self, rank: int) -> None:
        """Admit candidates of a tier while there is room, looking past a few that do not fit."""
        looked_past = 0
        candidates = self._waiting[rank].in_order() if rank < self._held_from else iter(())
        for candidate in candidates:
            if candidate.sequence_id in self.draft.items:
                continue
            wait = self._try_to_admit(candidate)
            if wait is not None:
                self.draft.waits[candidate.sequence_id] = wait
                looked_past += 1
                self._note_blocked(candidate, wait)
            out_of_room = wait in (Wait.TOKENS, Wait.SLOTS)
            if out_of_room or looked_past >= self._limits.lookahead or rank >= self._held_from:
                return

    def _try_to_admit(self, candidate: Candidate) -> Wait | None:
        rank = candidate.rank
        room = self.draft.budget.for_prefills(rank)
        if room <= 0:
            return Wait.TOKENS
        if rank == 0 and not self.draft.leaves_room(candidate, self._overdue):
            return Wait.HELD
        match = self.draft.find_match(candidate)
        more = len(self._waiting[rank]) - self._admitted[rank] > 1
        num_left = candidate.num_tokens - match.num_tokens
        num_tokens = self._chunk(rank, num_left, room, share=more)
        wait = self.draft.admit(candidate, match, num_tokens) if num_tokens else Wait.TOKENS
        if wait is None:
            self._prefilled = True
            self._note_admitted(rank)
        return wait

    def _note_admitted(self, rank: int) -> None:
        """Count the admission against those ahead of it that did not fit; maybe no more follow."""
        self._admitted[rank] += 1
        for ahead in self._blocked.values():
            if ahead.rank <= rank:
                self._count_overtaken(ahead, 1)

    def _note_blocked(self, candidate: Candidate, wait: Wait) -> None:
        """Remember who does not fit. While a tier is owed, more urgent ones overtake it too."""
        if wait in (Wait.TOKENS, Wait.HELD) or candidate.sequence_id in self._blocked:
            return
        self._blocked[candidate.sequence_id] = candidate
        more_urgent = sum(self._admitted[: candidate.rank]) if candidate.rank in self._owed else 0
        self._count_overtaken(candidate, more_urgent)

    def _count_overtaken(self, candidate: Candidate, times: int) -> None:
        if times:
            now = self.draft.overtaken.get(candidate.sequence_id, 0)
            self.draft.overtaken[candidate.sequence_id] = now + times
        if self._is_exhausted(candidate):
            self._held_from = min(self._held_from, candidate.rank)
