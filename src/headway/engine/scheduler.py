"""Which sequences wait, which hold blocks, and what does the next step do with them?

`schedule` asks `core.batching` for a plan and carries it out on the KV cache; `update` books what
the step computed. The plan decides, this file only keeps the books.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from headway.core.batching import plan_step
from headway.core.cost import Prices
from headway.core.due import next_token_due
from headway.core.predictor import StepTimePredictor
from headway.core.preemption import rest_s
from headway.core.request import Event, RequestState, next_state
from headway.core.step import Item, Resident, StepInput, StepLimits, StepPlan, Wait
from headway.core.tier_books import TierBooks
from headway.core.waiting_line import WaitingLine
from headway.engine.kv_blocks import KVBlocks
from headway.engine.kv_view import KVView
from headway.engine.request import FinishReason
from headway.engine.runner import SampledToken, SequenceSlice, StepResult
from headway.engine.sequence import Sequence, finish_reason, stop_token_ids
from headway.engine.stats import EngineStats


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """One step, ready to be executed."""

    plan: StepPlan
    slices: tuple[SequenceSlice, ...]
    copies: tuple[tuple[int, int], ...]
    at: float
    """When it was planned."""


class Advance(NamedTuple):
    """What a step brought one sequence: a token, or an error that ended it."""

    sequence: Sequence
    token: SampledToken | None = None
    error: str | None = None


NOTHING_BANNED: frozenset[int] = frozenset()


class Scheduler:
    """The books of one engine. Not thread safe; `now` is in seconds of one clock."""

    def __init__(
        self,
        kv: KVBlocks,
        limits: StepLimits,
        eos_token_ids: frozenset[int],
        stats: EngineStats,
        *,
        num_ranks: int,
        fcfs: bool,
        max_preemptions: int,
        predictor: StepTimePredictor | None = None,
    ) -> None:
        """Start empty. Without a `predictor` steps are bounded in tokens only."""
        self.kv = kv
        self.limits = limits
        self._eos_token_ids = eos_token_ids
        self._stats = stats
        self._max_preemptions = max_preemptions
        self._predictor = predictor
        self._sequences: dict[str, Sequence] = {}
        self._running: dict[str, Sequence] = {}
        self._groups: dict[str, list[Sequence]] = {}
        self._following: dict[str, list[Sequence]] = {}
        self._lines = tuple(
            WaitingLine(self._sequences, Prices(), max_preemptions, by_tenant=not fcfs)
            for _ in limits.tiers
        )
        self._books = TierBooks(limits, self._lines, kv.num_blocks)
        self._num_running = [0] * num_ranks
        self._num_waiting = [0] * num_ranks
        self._num_passed_over = 0
        self._step = 0

    # -- requests -------------------------------------------------------------------------------

    def add(self, sequences: Seq[Sequence], now: float) -> None:
        """Let the sequences of one request wait. Those after the first follow it.

        The first computes the prompt; then the others are admitted on copies of its blocks.
        """
        first, *others = sequences
        for sequence in sequences:
            self._sequences[sequence.sequence_id] = sequence
            self._num_waiting[sequence.request.rank] += 1
        self._groups[first.request.request_id] = list(sequences)
        self._lines[first.rank].push(first)
        blocks = -(-(len(first.token_ids) + 1) // self.kv.block_size)
        self._books.arrive(first.rank, now, num_seqs=len(sequences), num_blocks=blocks)
        if others:
            self._following[first.sequence_id] = others

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End a sequence and let go of all it holds; what it computed stays cached."""
        self._move(sequence, Event.ABORT if reason is FinishReason.ABORT else Event.FINISH)
        sequence.finish_reason = reason
        self._stats.count_finished(reason.value)
        self._leave(sequence)

    def abort(self, request_id: str) -> None:
        """End all sequences of a request that still run or wait. An unknown id means nothing."""
        for sequence in list(self._groups.get(request_id, ())):
            self._following.pop(sequence.sequence_id, None)
            self.finish(sequence, FinishReason.ABORT)

    def _move(self, sequence: Sequence, event: Event) -> None:
        """Change the state by the table, and the counts with it."""
        rank = sequence.request.rank
        runs = sequence.state is RequestState.RUNNING
        sequence.state = next_state(sequence.state, event)
        (self._num_running if runs else self._num_waiting)[rank] -= 1
        if sequence.state is RequestState.RUNNING:
            self._num_running[rank] += 1
        elif sequence.state is RequestState.PREEMPTED:
            self._num_waiting[rank] += 1

    def _leave(self, sequence: Sequence) -> None:
        sequence_id = sequence.sequence_id
        self.kv.free(sequence_id)
        self._running.pop(sequence_id, None)
        self._lines[sequence.rank].leave(sequence)
        self._release_followers(sequence)
        del self._sequences[sequence_id]
        group = self._groups[sequence.request.request_id]
        group.remove(sequence)
        if not group:
            del self._groups[sequence.request.request_id]

    def _release_followers(self, first: Sequence) -> None:
        for follower in self._following.pop(first.sequence_id, ()):
            self._lines[follower.rank].push(follower)

    @property
    def has_unfinished(self) -> bool:
        """Whether any sequence runs or waits."""
        return bool(self._sequences)

    # -- a step ---------------------------------------------------------------------------------

    def schedule(self, now: float) -> ScheduledStep | None:
        """Plan a step and make the KV cache ready for it; None: there is nothing to do."""
        if not self._sequences:
            return None
        plan = plan_step(self.step_input(now), self.limits)
        self._apply(plan, now)
        self._num_passed_over = self._num_in_line()
        self._step += 1
        self._count(plan)
        slices = tuple(map(self._slice, plan.items))
        return ScheduledStep(plan, slices, tuple(self.kv.take_copies()), now)

    def step_input(self, now: float) -> StepInput:
        """Return what a step planned now looks at, in which those wait whose rest is over."""
        self._books.wake(now, idle=not self._running)
        predictor = self._predictor
        return StepInput(
            residents=self._residents(now),
            waiting=self._lines,
            memory=KVView(self.kv, self._sequences, self._groups),
            owed=self._books.owed(),
            debts=self._books.debts(),
            recent=self._books.recent(now),
            demand=self._books.demand(now),
            cost=None if predictor is None else predictor.coefficients,
            safety=1.0 if predictor is None else predictor.safety,
        )

    def _residents(self, now: float) -> tuple[Resident, ...]:
        # Made directly: hundreds a step, and a named tuple's own constructor is a call more.
        new, most, residents = tuple.__new__, self._max_preemptions, []
        targets = [tier.target if tier.target.is_paced else None for tier in self.limits.tiers]
        for s in self._running.values():
            num_tokens, due_s = len(s.token_ids), inf
            if (target := targets[s.rank]) is not None:
                num_output = num_tokens - s.num_prompt_tokens
                due_at = next_token_due(target, s.first_token_s, s.latest_token_s, num_output)
                due_s = due_at - now
            residents.append(
                new(
                    Resident,
                    (
                        s.sequence_id,
                        s.rank,
                        s.arrival,
                        num_tokens,
                        s.num_computed,
                        s.max_num_tokens,
                        s.last_step,
                        s.preemptions >= most,
                        due_s,
                        False,
                    ),
                )
            )
        return tuple(residents)

    def _apply(self, plan: StepPlan, now: float) -> None:
        """Preempt, then pin what admissions found computed, then take blocks.

        In this order nothing that was found is evicted for somebody else's growth.
        """
        for sequence_id in plan.preempted:
            self._preempt(self._sequences[sequence_id], now)
        for item in plan.items:
            if item.is_admission:
                self._admit(item, now)
        for item in plan.items:
            self.kv.grow(item.sequence_id, item.start, item.start + item.num_tokens)
        for sequence_id, times in plan.overtaken.items():
            self._sequences[sequence_id].overtaken += times

    def _preempt(self, sequence: Sequence, now: float) -> None:
        """Take all blocks; the tokens stay, and so does the place in the order of arrival.

        It rests before it is admitted again, unless it has become protected.
        """
        self._move(sequence, Event.PREEMPT)
        sequence.preemptions += 1
        sequence.num_computed = 0
        self.kv.free(sequence.sequence_id)
        del self._running[sequence.sequence_id]
        line = self._lines[sequence.rank]
        line.release(sequence)
        line.rest(sequence, now + rest_s(sequence.preemptions, self._max_preemptions))
        self._stats.num_preemptions += 1

    def _admit(self, item: Item, now: float) -> None:
        sequence = self._sequences[item.sequence_id]
        first_time = sequence.state is RequestState.WAITING
        self._move(sequence, Event.ADMIT)
        if item.parent_id is not None:
            self.kv.fork(item.parent_id, item.sequence_id, item.start)
            sequence.num_computed = item.start
        else:
            sequence.num_computed = self.kv.admit(
                item.sequence_id,
                sequence.namespace,
                sequence.token_ids,
                max_cached_tokens=item.start,
                known=sequence.known_match,
            )
        assert sequence.num_computed == item.start, "the plan's prefix is not there"
        sequence.known_match = None
        if first_time:
            sequence.num_cached = item.start
            sequence.admitted_s = now
        sequence.overtaken = 0
        self._running[sequence.sequence_id] = sequence
        cost = self._lines[sequence.rank].admitted(sequence, item.start)
        self._books.serve(sequence.rank, cost)
        self._stats.num_prefix_queries += len(sequence.token_ids)
        self._stats.num_prefix_hits += item.start

    def _slice(self, item: Item) -> SequenceSlice:
        sequence_id, num_tokens = item.sequence_id, item.num_tokens
        sequence = self._sequences[sequence_id]
        params, token_ids = sequence.request.params, sequence.token_ids
        start, num_known = sequence.num_computed, len(token_ids)
        banned = NOTHING_BANNED
        if num_known - sequence.num_prompt_tokens < params.min_tokens:
            banned = stop_token_ids(sequence, self._eos_token_ids)
        return SequenceSlice(
            sequence_id,
            token_ids,
            sequence.num_prompt_tokens,
            start,
            start + num_tokens,
            self.kv.block_table(sequence_id),
            start + num_tokens == num_known,
            params,
            sequence.seed,
            banned,
        )

    def _count(self, plan: StepPlan) -> None:
        self._stats.num_steps += 1
        self._stats.num_batched_tokens += sum(item.num_tokens for item in plan.items)
        self._stats.last_budget_s = plan.budget_s
        for sequence_id, wait in plan.waits.items():
            if wait is Wait.TOKENS and sequence_id in self._running:
                self._stats.num_parked += 1

    def update(
        self, step: ScheduledStep, result: StepResult, elapsed_s: float | None = None
    ) -> list[Advance]:
        """Book what the step computed. Returns the tokens drawn and the sequences that failed.

        `elapsed_s` is how long the step took, for the predictor to learn from; None: not known.
        """
        end = step.at
        if elapsed_s is not None:
            end += elapsed_s
            self._learn(step.plan, elapsed_s)
        found = [self._advance(computed, result, end) for computed in step.slices]
        self._books.settle(self._running.values(), self._step)
        return [advance for advance in found if advance is not None]

    def _learn(self, plan: StepPlan, elapsed_s: float) -> None:
        if self._predictor is not None:
            self._stats.count_prediction(
                elapsed_s, self._predictor.predict(plan.features), self._predictor.safety
            )
            self._predictor.observe(plan.features, elapsed_s)

    def _advance(self, computed: SequenceSlice, result: StepResult, end: float) -> Advance | None:
        sequence_id, token_ids, num_prompt_tokens, start, computed_to = computed[:5]
        sequence = self._sequences[sequence_id]
        sequence.num_computed = computed_to
        sequence.last_step = self._step
        rank = sequence.rank
        self._books.serve(rank, self._lines[rank].charge(sequence, start, computed_to))
        if result.failed and (error := result.failed.get(sequence_id)) is not None:
            self.finish(sequence, FinishReason.ERROR)
            return Advance(sequence, error=error)
        self.kv.commit(sequence_id, token_ids, computed_to)
        if not computed.sample:
            return None
        token = result.sampled[sequence_id]
        if len(token_ids) == num_prompt_tokens:
            sequence.first_token_s = end
        sequence.latest_token_s = end
        sequence.token_ids.append(token.token_id)
        self._stats.num_generation_tokens += 1
        if self._following:
            self._release_followers(sequence)
        reason = finish_reason(sequence, self._eos_token_ids)
        if reason is not None:
            self.finish(sequence, reason)
        return Advance(sequence, token)

    def _num_in_line(self) -> int:
        """Return how many sequences wait, those aside that follow another one."""
        return sum(line.num_waiting for line in self._lines)

    # -- watching -------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Return the numbers as they are now."""
        return self._stats.snapshot(
            running=self._num_running,
            waiting=self._num_waiting,
            passed_over=min(self._num_passed_over, self._num_in_line()),
            held=self.kv.num_held,
            cached=self.kv.num_cached,
            free=self.kv.num_free,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off (G7, G9). Linear; for tests and when idle."""
        self.kv.check_integrity()
        assert len(self._running) <= self.limits.max_num_seqs, "more sequences than slots"
        following = {f.sequence_id for others in self._following.values() for f in others}
        for sequence_id, sequence in self._sequences.items():
            runs = sequence.state is RequestState.RUNNING
            places = (
                runs == (sequence_id in self._running) == self.kv.resident(sequence_id),
                runs != (sequence_id in self._lines[sequence.rank] or sequence_id in following),
                sequence.num_computed < len(sequence.token_ids),
            )
            assert all(places), f"{sequence_id} is {sequence.state}, but {places}"
        num_waiting = self._num_in_line()
        assert len(self._running) + num_waiting + len(following) == len(self._sequences), (
            "a sequence waits or runs that is not known"
        )
        assert sum(len(group) for group in self._groups.values()) == len(self._sequences), (
            "a group holds a sequence that is not known"
        )
        assert sum(self._num_running) == len(self._running), "the running are counted wrongly"
        assert sum(self._num_waiting) == num_waiting + len(following), "the waiting are not"
        if not self._sequences:
            assert self.kv.num_held == 0, f"idle, but {self.kv.num_held} blocks are held"
        for line in self._lines:
            line.check_integrity()
