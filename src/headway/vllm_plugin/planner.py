"""What does a step of vLLM compute, and for whom?

The books of one vLLM engine, without vLLM: requests come and go, `plan` asks the core
(`core.batching`) for the next step, and `carried_out` books what vLLM made of it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

from headway.core.batching import plan_step
from headway.core.cost import Prices
from headway.core.ordering import order_key
from headway.core.predictor import StepCoefficients, StepFeatures, StepTimePredictor
from headway.core.preemption import rest_s
from headway.core.promise import (
    Pace,
    tier_limits,
    without_idle_reserves,
)
from headway.core.step import Memory, StepInput, StepLimits, StepPlan, Wait
from headway.core.tier_books import TierBooks
from headway.core.waiting_line import WaitingLine
from headway.vllm_plugin.admissible import Admissible, Rules, Shortlist
from headway.vllm_plugin.counters import Counters
from headway.vllm_plugin.entry import Entry, VllmRequest
from headway.vllm_plugin.settings import Settings
from headway.vllm_plugin.size import Computed, EngineSize, StepBounds
from headway.vllm_plugin.terms import read_terms

PRIOR = StepCoefficients(base_s=0.02, token_s=0.001)
"""What steps are taken to cost before any was timed: those of a slow machine, because what turns
out to be faster is believed at once."""


class Planner:
    """Not thread safe; `now` is in seconds of one clock."""

    def __init__(self, settings: Settings, size: EngineSize) -> None:
        self.settings = settings
        self.predictor = StepTimePredictor(PRIOR)
        self.counters = Counters(settings.tiers)
        self._size = size
        self._entries: dict[str, Entry] = {}
        self._lines = tuple(
            WaitingLine(self._entries, Prices(), settings.max_preemptions, by_tenant=True)
            for _ in settings.tiers.all
        )
        self._pace = Pace(self.predictor, size.max_num_batched_tokens)
        self.limits = self._promise()
        self._books = TierBooks(self.limits, self._lines, size.num_blocks)
        self._admissible = Admissible(
            self._lines, self._entries, size.max_loras, self.limits.max_overtakes
        )
        self._leaving: frozenset[str] = frozenset()
        """Who sits out steps until none writes its blocks, to lose them then."""
        self._lacking: frozenset[str] = frozenset()
        """Who lacked a slot or blocks in the latest plan."""
        self._arrivals = 0
        self._step = 0

    # -- requests -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many requests wait, those at rest included."""
        return sum(line.num_waiting for line in self._lines)

    def __contains__(self, request_id: object) -> bool:
        """Return whether the request is known."""
        return request_id in self._entries

    def arrive(self, request: VllmRequest, now: float) -> None:
        """Take a request that vLLM has accepted. It does not stand in line yet."""
        params = request.sampling_params
        extra_args = None if params is None else params.extra_args
        terms = read_terms(request.priority, extra_args, self.settings.tiers)
        deadline_s = terms.deadline_s
        self._arrivals += 1
        blocks = -(-(request.num_prompt_tokens + 1) // self._size.block_size)
        self._books.arrive(terms.tier.rank, now, num_seqs=1, num_blocks=blocks)
        self._entries[request.request_id] = Entry(
            request=request,
            terms=terms,
            rank=terms.tier.rank,
            arrival=self._arrivals,
            arrived_s=now,
            key=order_key(
                now,
                ttft_s=terms.tier.target.ttft_s,
                deadline=None if deadline_s is None else now + deadline_s,
                prompt_tokens=request.num_prompt_tokens,
            ),
            max_num_tokens=min(
                request.num_prompt_tokens + request.max_tokens, self._size.max_model_len
            ),
        )

    def rank_of(self, request_id: str) -> int:
        """Return the rank of a known request."""
        return self._entries[request_id].rank

    def in_order(self) -> Iterator[str]:
        """Yield who stands in line, by tier."""
        for line in self._lines:
            for candidate in line.in_order():
                yield candidate.sequence_id

    def stand_in_line(self, request_id: str, now: float) -> None:
        """Let a known request wait for its turn, if it does not already; first it rests."""
        entry = self._entries[request_id]
        line = self._lines[entry.rank]
        if request_id in line:
            return
        if entry.rests_until > now:
            line.rest(entry, entry.rests_until)
        else:
            line.push(entry)

    def leave_line(self, request_id: str) -> None:
        """Take a request out of line, if it waits."""
        entry = self._entries.get(request_id)
        if entry is not None:
            self._lines[entry.rank].remove(entry)

    def preempt(self, request_id: str, now: float) -> None:
        """Note that a request is about to lose its blocks to another one; it rests after."""
        entry = self._entries[request_id]
        entry.preemptions += 1
        entry.rests_until = now + rest_s(entry.preemptions, self.settings.max_preemptions)
        self.lose_blocks(request_id)
        self.counters.add("preemptions", rank=entry.rank)

    def lose_blocks(self, request_id: str) -> None:
        """Note that a request is about to lose its blocks, to nobody."""
        entry = self._entries[request_id]
        entry.num_lost = entry.num_computed
        self._lines[entry.rank].release(entry)

    def forget(self, request_id: str) -> None:
        """Let go of a request that has ended, if it is known."""
        entry = self._entries.get(request_id)
        if entry is not None:
            self._lines[entry.rank].leave(entry)
            self._admissible.forget(request_id)
            del self._entries[request_id]

    def note_tokens(self, request_id: str, num_tokens: int, now: float) -> None:
        """Take the time at which a request was given tokens."""
        entry = self._entries.get(request_id)
        if entry is not None:
            entry.note_tokens(num_tokens, now)

    # -- a step ---------------------------------------------------------------------------------

    def plan(
        self,
        running: Collection[VllmRequest],
        memory: Memory,
        now: float,
        bounds: StepBounds,
    ) -> StepPlan:
        """Return what the next step is to compute.

        A step under way that writes a victim's blocks has to end first: the victim sits out, and
        gives way in the step after.
        """
        self._follow_machine()
        self._books.wake(now, idle=not running)
        entries = [self._entries[request.request_id] for request in running]
        sessions = [self._entries[request.request_id] for request in bounds.sessions]
        rules = self._rules()
        step = self._step_input(entries, memory, now, bounds.begins_at)
        idle = self._leaving.union(self._admissible.idle(entries, self._step))
        waiting = self._admissible.choose(entries, sessions, rules)
        if bounds.decodes_only:
            lefts = ((r.sequence_id, r.num_tokens - r.num_computed) for r in step.residents)
            idle = idle.union(name for name, left in lefts if left > 1)
            waiting = tuple(Shortlist() for _ in waiting)
        step = replace(_idle(step, idle), waiting=waiting)
        limits = replace(
            self.limits,
            max_num_seqs=bounds.max_num_seqs,
            max_num_batched_tokens=bounds.max_num_batched_tokens,
            tiers=without_idle_reserves(self.limits.tiers, step.recent),
        )
        plan = plan_step(step, limits)
        leaving = self._busy_victims(step, limits, plan)
        if leaving:
            plan = plan_step(_idle(step, leaving), limits)
        lacking = (Wait.SLOTS, Wait.BLOCKS, Wait.HELD)
        self._lacking = frozenset(name for name, why in plan.waits.items() if why in lacking)
        return plan

    def _step_input(
        self, entries: Sequence[Entry], memory: Memory, now: float, begins_at: float
    ) -> StepInput:
        most = self.settings.max_preemptions
        targets = [tier.target if tier.target.is_paced else None for tier in self.limits.tiers]
        return StepInput(
            residents=tuple(e.resident(targets[e.rank], begins_at, most) for e in entries),
            waiting=self._lines,
            memory=memory,
            owed=self._books.owed(),
            debts=self._books.debts(),
            recent=self._books.recent(now),
            demand=self._books.demand(now),
            cost=self.predictor.coefficients,
            safety=self.predictor.safety,
        )

    def give_way(
        self, running: Collection[VllmRequest], memory: Memory, bounds: StepBounds
    ) -> list[str]:
        """Return who is to lose its blocks before `plan`, which then leaves out who still cannot.

        For reasons that the plan does not know; see `admissible.py`.
        """
        if bounds.decodes_only or self._admissible.is_plain:
            self._leaving = frozenset()
            return []
        entries = [self._entries[request.request_id] for request in running]
        sessions = [self._entries[request.request_id] for request in bounds.sessions]
        users = self._admissible.give_way(entries, sessions, memory, self._rules())
        names = [entry.sequence_id for entry in users]
        is_busy = any(entry.is_busy for entry in users)
        self._leaving = frozenset(names if is_busy else ())
        return [] if is_busy else names

    def _rules(self) -> Rules:
        most, owed = self.settings.max_preemptions, self._books.owed()
        return Rules(self.limits.tiers, most, self._step, owed, self._lacking)

    def _busy_victims(self, step: StepInput, limits: StepLimits, plan: StepPlan) -> frozenset[str]:
        """Return who would be preempted if no step were under way."""
        busy = {r.sequence_id for r in step.residents if r.busy}
        lacking = (Wait.SLOTS, Wait.BLOCKS)
        if not busy or all(wait not in lacking for wait in plan.waits.values()):
            return frozenset()
        residents = tuple(r._replace(busy=False) for r in step.residents)
        ideal = plan_step(replace(step, residents=residents), limits)
        return frozenset(busy.intersection(ideal.preempted))

    def carried_out(
        self,
        plan: StepPlan | None,
        computed: Sequence[Computed],
        running: Iterable[VllmRequest],
        now: float,
        refused: str | None = None,
    ) -> StepFeatures:
        """Book what vLLM made of a plan; `running` as it is now. Returns what the step computes.

        `refused` is whom vLLM would not admit although the plan did.
        """
        self._step += 1
        num_tokens = [0] * len(self._lines)
        for item in computed:
            entry = self._entries.get(item.request.request_id)
            if entry is None:
                continue
            rank = entry.rank
            num_tokens[rank] += item.num_tokens
            self._charge(entry, item, now)
        for rank, number in enumerate(num_tokens):
            self.counters.add("batched_tokens", number, rank)
        self._note_served(plan, computed, refused)
        if plan is not None:
            self._note_waits(plan)
            bounded_s = plan.budget_s if plan.budget_s < inf else 0.0
            self.counters.set("step_budget_seconds", bounded_s)
        known = (self._entries.get(request.request_id) for request in running)
        self._books.settle([entry for entry in known if entry is not None], self._step)
        self.counters.add("steps")
        return StepFeatures.of([(item.num_tokens, item.start) for item in computed])

    def _charge(self, entry: Entry, item: Computed, now: float) -> None:
        """Book one request's part of a step."""
        rank, line = entry.rank, self._lines[entry.rank]
        if item.is_admission:
            self._books.serve(rank, line.admitted(entry, item.start))
            if entry.last_step < 0:
                self.counters.add("admissions", rank=rank)
                self.counters.add("queue_seconds", now - entry.arrived_s, rank)
            self.counters.add("recomputed_tokens", max(0, entry.num_lost - item.start), rank)
            entry.overtaken = entry.num_lost = 0
        entry.last_step = self._step
        end = item.start + item.num_tokens
        self._books.serve(rank, line.charge(entry, item.start, end - item.num_drafts))
        if item.num_drafts:
            self._books.serve(rank, line.charge(entry, end - item.num_drafts, end))

    def _note_served(
        self, plan: StepPlan | None, computed: Sequence[Computed], refused: str | None
    ) -> None:
        """Take of whom vLLM computed something, and for whom it did nothing."""
        served = [
            self._entries[item.request.request_id]
            for item in computed
            if item.request.request_id in self._entries
        ]
        admitted = {item.request.request_id for item in computed if item.is_admission}
        idle = [] if refused is None else [refused]
        if plan is not None:
            names = {entry.sequence_id for entry in served}
            left = (item.sequence_id for item in plan.items if not item.is_admission)
            left = (name for name in left if name in self._entries and name not in names)
            # Of what else is not computed vLLM knows that it has ended.
            idle += [name for name in left if self._entries[name].has_items]
        self._admissible.note(served, idle, self._step)
        self._admissible.note_admitted([e for e in served if e.sequence_id in admitted])
        for name in idle:
            if name in self._entries:
                self.counters.add("refused", rank=self._entries[name].rank)

    def _note_waits(self, plan: StepPlan) -> None:
        for request_id, wait in plan.waits.items():
            entry = self._entries.get(request_id)
            if entry is None or wait is not Wait.TOKENS or request_id in self._lines[entry.rank]:
                continue
            if entry.last_step != self._step:
                self.counters.add("parked_turns", rank=entry.rank)
        for request_id, times in plan.overtaken.items():
            if request_id in self._entries:
                self._entries[request_id].overtaken += times

    # -- the machine ----------------------------------------------------------------------------

    def observe(self, features: StepFeatures, actual_s: float) -> None:
        """Learn from a step how long it took."""
        predicted_s = self.predictor.predict(features)
        self.counters.add("step_seconds", actual_s)
        self.counters.add("predicted_step_seconds", predicted_s)
        self.counters.add("late_steps", float(actual_s > self.predictor.guarded(features)))
        self.predictor.observe(features, actual_s)

    def _follow_machine(self) -> None:
        """Let the promises follow what the machine turns out to be."""
        if self._pace.follow():
            self.limits = self._promise()

    def _promise(self) -> StepLimits:
        settings, size = self.settings, self._size
        return StepLimits(
            max_num_seqs=size.max_num_seqs,
            max_num_batched_tokens=size.max_num_batched_tokens,
            tiers=tier_limits(
                settings.tiers,
                self._pace.efficient_s(settings.efficiency),
                max_num_seqs=size.max_num_seqs,
                num_blocks=size.num_blocks,
                ttft_share=settings.ttft_share,
            ),
            enable_chunked_prefill=size.enable_chunked_prefill,
            watermark_blocks=size.watermark_blocks,
            # With drafts the plan has fewer tokens than vLLM: what does not fit may fit there.
            may_exceed_tokens=size.speculates,
            min_step_s=self._pace.efficient_s(settings.min_efficiency),
        )

    # -- watching -------------------------------------------------------------------------------

    def report(self, running: Iterable[VllmRequest]) -> dict[str, int]:
        """Return the numbers since the latest report, as vLLM carries them."""
        counts = [0] * len(self._lines)
        for request in running:
            entry = self._entries.get(request.request_id)
            if entry is not None:
                counts[entry.rank] += 1
        for rank, line in enumerate(self._lines):
            self.counters.set("num_requests_running", counts[rank], rank)
            self.counters.set("num_requests_waiting", line.num_waiting, rank)
        self.counters.set("safety_factor", self.predictor.safety)
        return self.counters.take()

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        for line in self._lines:
            line.check_integrity()
        if not self._entries:
            assert len(self) == 0, "nobody is known, but somebody waits"


def _idle(step: StepInput, sequence_ids: Collection[str]) -> StepInput:
    """Return the same with nothing to compute for these."""
    if not sequence_ids:
        return step
    residents = tuple(
        r._replace(num_tokens=r.num_computed) if r.sequence_id in sequence_ids else r
        for r in step.residents
    )
    return replace(step, residents=residents)
