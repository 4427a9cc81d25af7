"""How does headway's own engine plan a simulated step?

The real scheduler of the engine, on a cache that only counts blocks. This file translates between
the two, and does for it what `engine/engine.py` does: it hands in each request as a sequence, and
each step's time as it was.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from math import inf
from operator import attrgetter

from headway.core.budget import fits_any_bound
from headway.core.ordering import order_key
from headway.core.predictor import StepFeatures, StepTimePredictor
from headway.core.promise import Pace
from headway.core.step import StepLimits
from headway.core.tier import Tiers
from headway.engine.calibration import FastestSteps
from headway.engine.options import EngineOptions
from headway.engine.request import EngineRequest
from headway.engine.runner import SampledToken, SequenceSlice, StepResult
from headway.engine.sampling_params import SamplingParams
from headway.engine.scheduler import ScheduledStep
from headway.engine.sequence import Sequence
from headway.engine.stats import EngineStats
from headway.engine.step_limits import step_limits
from headway.sim.counted_tokens import CountedTokens
from headway.sim.counting_kv import CountingKV
from headway.sim.kept_targets import with_kept_targets
from headway.sim.repeating import RepeatingScheduler
from headway.sim.scheduler import (
    Emission,
    PolicySetup,
    Repeated,
    SchedulerStats,
    SimRequest,
    SimStep,
)

_EOS = 1
_MORE, _LAST = SampledToken(0), SampledToken(_EOS)
_params = cache(SamplingParams)


@dataclass(slots=True, eq=False)
class _Live:
    sequence: Sequence
    num_output_tokens: int
    one_more: Emission
    """What any step but the last brings it."""
    num_seen: int = 0
    """Tokens that were ever computed for it."""


@dataclass(slots=True, eq=False)
class _Steady:
    """Sequences that get one more token in each step, and nothing else happens."""

    sequences: tuple[Sequence, ...]
    num_tokens: tuple[int, ...]
    """By rank, in one step."""
    context: int
    """Tokens that the next step attends to."""
    num_left: int
    """Steps until one of them has its last token."""
    num_fitting: int
    """Steps until blocks might run out."""
    unbounded: bool
    """Whether the time of a step matters to none of them."""
    ends: list[float] = field(default_factory=list)
    """Of the steps that are not booked yet."""
    latest_s: float = 0.0
    """End of the latest step on the engine's own clock."""
    in_flight: bool = False
    closed: bool = False
    """Somebody came or left: the step under way is the last."""

    def features(self) -> StepFeatures:
        """Return what the next step computes."""
        count = len(self.sequences)
        return StepFeatures(num_tokens=count, num_decodes=count, decode_context=self.context)


class HeadwayScheduler:
    """`StepScheduler` of the `headway` policy."""

    def __init__(self, setup: PolicySetup) -> None:
        shape = setup.shape
        self._tiers = setup.tiers
        self._keep_targets = setup.keep_targets
        self._options = EngineOptions(
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            block_size=shape.block_size,
            enable_prefix_caching=shape.enable_prefix_caching,
            tiers=setup.tiers,
        )
        self._predictor = StepTimePredictor(_measured(setup).step_time)
        self._pace = Pace(self._predictor, shape.max_num_batched_tokens)
        self._followed = self._predictor.coefficients
        self._num_blocks = shape.num_blocks
        self._engine_stats = EngineStats(
            max_num_seqs=shape.max_num_seqs,
            num_blocks=shape.num_blocks,
            block_size=shape.block_size,
        )
        caching = shape.enable_prefix_caching
        self._kv = CountingKV(shape.num_blocks, shape.block_size, enable_prefix_caching=caching)
        self._scheduler = RepeatingScheduler(
            self._kv,
            self._limits(),
            frozenset([_EOS]),
            self._engine_stats,
            num_ranks=len(setup.tiers),
            fcfs=False,
            max_preemptions=self._options.max_preemptions,
            predictor=self._predictor,
        )
        self._live: dict[str, _Live] = {}
        self._may_repeat = setup.may_repeat
        self._steady: _Steady | None = None
        self._somebody_left = False
        self._told: list[Repeated] = []
        self._arrivals = count()
        self._num_recomputed = 0

    def add(self, request: SimRequest, now: float) -> None:
        """See `StepScheduler`."""
        self._close()
        sequence = _sequence(request, next(self._arrivals), self._tiers, now)
        one_more = Emission(request.request_id, finished=False)
        self._live[request.request_id] = _Live(sequence, request.num_output_tokens, one_more)
        self._scheduler.add([sequence], now)

    def abort(self, request_id: str) -> None:
        """See `StepScheduler`."""
        if request_id in self._live:
            self._close()
            self._somebody_left = True
            del self._live[request_id]
            self._scheduler.abort(request_id)

    def num_preemptions(self, request_id: str) -> int:
        """See `StepScheduler`."""
        return self._live[request_id].sequence.preemptions

    def plan(self, now: float) -> SimStep | None:
        """See `StepScheduler`."""
        repeated = self._repeat(now) if self._may_repeat else None
        if repeated is not None:
            return repeated
        self._close()
        step = self._scheduler.schedule(now)
        if step is None:
            return None
        return SimStep(
            features=step.plan.features,
            num_tokens=self._count(step.slices),
            token=step,
            budget_tokens=self._options.max_num_batched_tokens,
            predicted_s=self._predictor.predict(step.plan.features),
            budget_s=None if step.plan.budget_s == inf else step.plan.budget_s,
            safety=self._predictor.safety,
        )

    def done(self, step: SimStep, now: float, step_s: float) -> Seq[Emission]:
        """See `StepScheduler`."""
        if step.is_repeat:
            return self._repeated(step, now, step_s)
        planned = step.token
        assert isinstance(planned, ScheduledStep), "a step of another policy"
        live = self._live
        if self._somebody_left:
            self._somebody_left = False
            left = tuple(each for each in planned.slices if each.sequence_id in live)
            planned = replace(planned, slices=left)
        sampled = {}
        for each in planned.slices:
            if each.sample:
                # The model ends an answer at its true length.
                num_output = each.end - each.num_prompt_tokens + 1
                ends = num_output >= live[each.sequence_id].num_output_tokens
                sampled[each.sequence_id] = _LAST if ends else _MORE
        emissions = []
        advances = self._scheduler.update(planned, StepResult(sampled=sampled), step_s)
        self._follow_pace()
        for advance in advances:
            sequence = advance.sequence
            if sequence.finish_reason is None:
                emissions.append(live[sequence.sequence_id].one_more)
                continue
            del live[sequence.sequence_id]
            emissions.append(
                Emission(sequence.sequence_id, True, sequence.num_cached, sequence.preemptions)
            )
        return emissions

    # -- equal steps ----------------------------------------------------------------------------

    def _repeat(self, now: float) -> SimStep | None:
        """Return the step if it is one more token for each that runs, whatever else there is.

        Then the plan would have been that, too: nobody waits, blocks are there for all, and the
        time is within any bound.
        """
        steady = self._steady if self._steady is not None else self._find_steady()
        if steady is None or steady.num_fitting == 0:
            return None
        features = steady.features()
        predicted_s = self._predictor.predict(features)
        if not (steady.unbounded or fits_any_bound(predicted_s, self._scheduler.limits)):
            return None
        self._steady = steady
        steady.in_flight = True
        return SimStep(
            features=features,
            num_tokens=steady.num_tokens,
            token=now,
            budget_tokens=self._options.max_num_batched_tokens,
            predicted_s=predicted_s,
            is_repeat=True,
        )

    def _find_steady(self) -> _Steady | None:
        sequences = self._scheduler.steady()
        size = self._options.block_size
        num_each = self._kv.num_available // max(1, len(sequences)) * size
        if not sequences or num_each == 0 or len(sequences) > self._options.max_num_batched_tokens:
            return None
        tokens = [0] * len(self._tiers)
        lasts, context = [], 0
        for sequence in sequences:
            tokens[sequence.rank] += 1
            context += sequence.num_computed
            known = sequence.num_prompt_tokens + self._live[sequence.sequence_id].num_output_tokens
            lasts.append(known - len(sequence.token_ids))
        unbounded = tokens[0] == len(sequences)
        return _Steady(sequences, tuple(tokens), context, min(lasts) - 1, num_each, unbounded)

    def _repeated(self, step: SimStep, now: float, step_s: float) -> Seq[Emission]:
        """A step is over that was one more token for each; return whose last it brought."""
        steady = self._steady
        assert steady is not None, "a step of another policy"
        assert isinstance(step.token, float), "a repeated step knows when it began"
        steady.in_flight = False
        if steady.num_left == 0:
            self._book(steady)
        steady.ends.append(now)
        steady.num_left, steady.num_fitting = steady.num_left - 1, steady.num_fitting - 1
        steady.context += len(steady.sequences)
        steady.latest_s = step.token + step_s
        self._scheduler.learn(step.features, step_s)
        self._follow_pace()
        if steady.num_left < 0:
            return self._book_last(steady)
        if steady.closed:
            self._close()
        return ()

    def _book_last(self, steady: _Steady) -> Seq[Emission]:
        """Book the step that has ended alone: it was the last of somebody."""
        self._steady = None
        ending = []
        for sequence in sorted(steady.sequences, key=attrgetter("rank", "last_step", "arrival")):
            live = self._live.get(sequence.sequence_id)
            if live is not None and sequence.num_output_tokens + 1 == live.num_output_tokens:
                ending.append(sequence)
        self._book(steady, ending)
        for sequence in ending:
            del self._live[sequence.sequence_id]
        return [Emission(s.sequence_id, True, s.num_cached, s.preemptions) for s in ending]

    def _close(self) -> None:
        """Something else happens: what is under way ends as it began, and is the last of it."""
        steady = self._steady
        if steady is not None:
            self._book(steady)
            steady.closed = True
            if not steady.in_flight:
                self._steady = None

    def catch_up(self) -> None:
        """See `Repeats`. The step under way has taken its blocks, as any step has."""
        steady = self._steady
        if steady is None:
            return
        self._book(steady)
        for sequence in steady.sequences if steady.in_flight else ():
            if sequence.sequence_id in self._live:
                computed = sequence.num_computed
                self._kv.grow(sequence.sequence_id, computed, computed + 1)

    def _book(self, steady: _Steady, ending: Seq[Sequence] = ()) -> None:
        if not steady.ends:
            return
        self._scheduler.repeat(len(steady.ends), steady.latest_s, ending)
        alive = [s for s in steady.sequences if s.sequence_id in self._live]
        for sequence in alive:
            live = self._live[sequence.sequence_id]
            live.num_seen = max(live.num_seen, sequence.num_computed)
        ids = tuple(sequence.sequence_id for sequence in alive)
        self._told.append(Repeated(ids, tuple(steady.ends)))
        steady.ends.clear()

    def take_repeated(self) -> Repeated | None:
        """See `Repeats`."""
        return self._told.pop(0) if self._told else None

    def stats(self) -> SchedulerStats:
        """See `StepScheduler`."""
        self.catch_up()
        stats = self._scheduler.stats()
        return SchedulerStats(
            running=stats.num_running,
            waiting=stats.num_waiting,
            kv_used=stats.kv_usage,
            num_preemptions=stats.num_preemptions,
            num_recomputed_tokens=self._num_recomputed,
            num_parked=stats.num_parked,
        )

    def check_integrity(self) -> None:
        """See `StepScheduler`."""
        self._scheduler.check_integrity()
        assert bool(self._live) == self._scheduler.has_unfinished, "a request is lost"

    def _follow_pace(self) -> None:
        """Promise what can be kept at the present pace, if the last step taught anything of it."""
        coefficients = self._predictor.coefficients
        if coefficients is not self._followed:
            self._followed = coefficients
            if self._pace.follow():
                self._scheduler.limits = self._limits()

    def _limits(self) -> StepLimits:
        """What the engine makes of its measurements, or of the targets as they are configured."""
        limits = step_limits(self._options, self._num_blocks, self._pace)
        if not self._keep_targets:
            return limits
        return with_kept_targets(limits, self._tiers, self._pace, self._num_blocks)

    def _count(self, slices: Seq[SequenceSlice]) -> tuple[int, ...]:
        """Count a step's tokens by rank, and those that were computed before."""
        tokens = [0] * len(self._tiers)
        for each in slices:
            live = self._live[each.sequence_id]
            start, end, seen = each.start, each.end, live.num_seen
            tokens[live.sequence.rank] += end - start
            if start < seen:
                self._num_recomputed += min(end, seen) - start
            if end > seen:
                live.num_seen = end
        return tuple(tokens)


def _measured(setup: PolicySetup) -> FastestSteps:
    """Time what the engine times at its start: a step of one token, and of as many as fit."""
    most = setup.shape.max_num_batched_tokens
    fastest = FastestSteps(most)
    fastest.note(1, setup.measure(StepFeatures().plus_prefill(1, 0)))
    fastest.note(most, setup.measure(StepFeatures().plus_prefill(most, 0)))
    return fastest


def _sequence(request: SimRequest, arrival: int, tiers: Tiers, now: float) -> Sequence:
    num_prompt = request.num_prompt_tokens
    tokens = CountedTokens(num_prompt, request.prefix_id, request.num_prefix_tokens)
    engine_request = EngineRequest(
        request_id=request.request_id,
        prompt_token_ids=range(num_prompt),
        params=_params(max_tokens=request.max_tokens),
        rank=request.rank,
        tenant=request.tenant,
        weight=request.weight,
    )
    key = order_key(
        now,
        ttft_s=tiers.by_rank(request.rank).target.ttft_s,
        deadline=request.deadline,
        prompt_tokens=num_prompt,
    )
    return Sequence(
        sequence_id=request.request_id,
        request=engine_request,
        index=0,
        rank=request.rank,
        arrival=arrival,
        key=key,
        seed=0,
        max_tokens=request.max_tokens,
        token_ids=tokens,
        arrived_s=now,
    )
