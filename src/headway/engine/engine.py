"""How does a request become tokens?

Each `step()` is schedule, execute, update: the scheduler plans, the runner computes, the tokens
become text. Everything between a submission and its answers passes through here; nothing here
knows threads, sockets or tensors.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from headway.clock import Clock, MonotonicClock
from headway.core.ordering import order_key
from headway.core.predictor import StepTimePredictor
from headway.core.promise import Pace
from headway.core.step import StepLimits
from headway.core.tier import Tier
from headway.engine.calibration import measure_steps
from headway.engine.fit import Fit
from headway.engine.loading import LoadedModel, load_model
from headway.engine.options import EngineOptions, engine_options
from headway.engine.output import AnswerText
from headway.engine.request import Choice, EngineRequest, FinishReason, RequestOutput
from headway.engine.runner import ModelRunner
from headway.engine.sampling_params import SamplingParams
from headway.engine.scheduler import Advance, ScheduledStep, Scheduler
from headway.engine.sequence import Sequence
from headway.engine.stats import EngineStats
from headway.engine.step_limits import step_limits
from headway.engine.step_log import StepRecord
from headway.engine.tokenizer import Tokenizer
from headway.errors import ConfigError, EngineDeadError, InvalidRequestError
from headway.kv.cache import KVCache


@dataclass(slots=True)
class _Live:
    """A request with unfinished answers."""

    request: EngineRequest
    sequences: tuple[Sequence, ...]
    texts: tuple[AnswerText, ...]
    num_unfinished: int
    gained: list[Choice] = field(default_factory=list)


class LLMEngine:
    """A model that serves many requests at once. Not thread safe; see `AsyncEngine`.

    `settings` are the fields of `EngineOptions`, or `options` holds them all. Raises ConfigError
    for a setting that does not exist or cannot be, ModelLoadError when a model cannot be read.
    """

    def __init__(
        self,
        model: str | LoadedModel = "smollm2-135m",
        *,
        options: EngineOptions | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.options = engine_options(settings) if options is None else options
        loaded = load_model(model, self.options) if isinstance(model, str) else model
        self.runner = loaded.runner
        self.tokenizer = loaded.tokenizer
        self._clock: Clock = MonotonicClock() if clock is None else clock
        self.fit = Fit(
            vocab_size=self.runner.vocab_size,
            max_model_len=self.runner.max_model_len,
            num_kv_tokens=self.runner.num_blocks * self.runner.block_size,
            num_ranks=len(self.options.tiers),
        )
        _check_usable(self.runner)
        self._pace: Pace | None = None
        self.predictor: StepTimePredictor | None = None
        """Measured at start, if `calibrate`, and learning from every step."""
        if self.options.calibrate:
            self._calibrate()
        self._fcfs = self.options.scheduling_policy == "fcfs"
        self._scheduler = self._new_scheduler()
        self._live: dict[str, _Live] = {}
        self._arrivals = count()
        self._random = Random(self.options.seed)
        self._died: str | None = None
        self.on_step: Callable[[StepRecord], None] | None = None
        """Called after each step, in the thread of `step`."""

    @classmethod
    def from_parts(
        cls,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        options: EngineOptions | None = None,
        clock: Clock | None = None,
    ) -> "LLMEngine":
        """Return an engine of given parts. Blocks and context are the runner's.

        Without `options.calibrate` no latency target bounds a step.
        """
        options = EngineOptions(calibrate=False) if options is None else options
        return cls(LoadedModel(runner, tokenizer), options=options, clock=clock)

    def _calibrate(self) -> None:
        max_tokens = self.options.max_num_batched_tokens
        prior = measure_steps(self.runner, self._clock, max_tokens=max_tokens).step_time
        if prior.token_s > 0:
            self.predictor = StepTimePredictor(prior)
            self._pace = Pace(self.predictor, max_tokens)

    @property
    def limits(self) -> StepLimits:
        """What a step may hold on this machine, and what its tiers are promised."""
        return self._scheduler.limits

    def _step_limits(self) -> StepLimits:
        return step_limits(self.options, self.runner.num_blocks, self._pace)

    def _new_scheduler(self) -> Scheduler:
        runner, options = self.runner, self.options
        self._stats = EngineStats(
            max_num_seqs=options.max_num_seqs,
            num_blocks=runner.num_blocks,
            block_size=runner.block_size,
        )
        caching = options.enable_prefix_caching
        return Scheduler(
            KVCache(runner.num_blocks, runner.block_size, enable_prefix_caching=caching),
            self._step_limits(),
            self.tokenizer.eos_token_ids,
            self._stats,
            num_ranks=len(options.tiers),
            fcfs=self._fcfs,
            max_preemptions=options.max_preemptions,
            predictor=self.predictor,
        )

    # -- requests -------------------------------------------------------------------------------

    def add_request(
        self,
        request_id: str,
        prompt: str | Seq[int],
        params: SamplingParams,
        *,
        tier: str | int = "normal",
        tenant: str = "",
        weight: float = 1.0,
        deadline_s: float | None = None,
    ) -> None:
        """Submit a prompt, as text or as tokens. Raises InvalidRequestError if it never fits.

        `tier` is a name, an alias or a rank. `deadline_s`: seconds from now.
        """
        token_ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        self.add(
            EngineRequest(
                request_id=request_id,
                prompt_token_ids=tuple(token_ids),
                params=params,
                rank=self._tier(tier).rank,
                tenant=tenant,
                weight=weight,
                deadline_s=deadline_s,
            )
        )

    def add(self, request: EngineRequest) -> None:
        """Submit a request. Raises InvalidRequestError if it never fits or its id is in use."""
        self._check_alive()
        max_tokens = self.fit.check(request)
        if request.request_id in self._live:
            raise InvalidRequestError("a request of this id is unfinished", param="request_id")
        now = self._clock.now()
        indexes = range(request.params.n)
        sequences = tuple(self._sequence(request, index, max_tokens, now) for index in indexes)
        texts = tuple(AnswerText(index, request.params, self.tokenizer) for index in indexes)
        self._live[request.request_id] = _Live(request, sequences, texts, len(sequences))
        self._stats.num_prompt_tokens += len(request.prompt_token_ids)
        self._scheduler.add(sequences, now)

    def _sequence(
        self, request: EngineRequest, index: int, max_tokens: int, now: float
    ) -> Sequence:
        seed = request.params.seed
        arrival = next(self._arrivals)
        return Sequence(
            sequence_id=f"{request.request_id}/{index}",
            request=request,
            index=index,
            rank=0 if self._fcfs else request.rank,
            arrival=arrival,
            key=float(arrival) if self._fcfs else self._key(request, now),
            seed=self._random.getrandbits(62) if seed is None else seed + index,
            max_tokens=max_tokens,
            token_ids=list(request.prompt_token_ids),
            arrived_s=now,
        )

    def _key(self, request: EngineRequest, now: float) -> float:
        target = self.options.tiers.by_rank(request.rank).target
        return order_key(
            now,
            ttft_s=target.ttft_s,
            deadline=None if request.deadline_s is None else now + request.deadline_s,
            prompt_tokens=len(request.prompt_token_ids),
        )

    def _tier(self, tier: str | int) -> Tier:
        tiers = self.options.tiers
        if isinstance(tier, str):
            found = tiers.by_name(tier)
        else:
            found = tiers.by_rank(tier) if 0 <= tier < len(tiers) else None
        if found is None:
            names = ", ".join(known.name for known in tiers.all)
            raise InvalidRequestError(f"there is no tier {tier!r}, only {names}", param="tier")
        return found

    def abort(self, request_id: str) -> None:
        """End a request and let go of all it holds. An unknown or finished id means nothing."""
        self._scheduler.abort(request_id)
        self._live.pop(request_id, None)

    def abort_all(self) -> None:
        """End every request."""
        for request_id in list(self._live):
            self.abort(request_id)

    def has_unfinished(self) -> bool:
        """Whether a step would do something."""
        return bool(self._live)

    # -- a step ---------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Run one iteration; return what each request gained, if anything.

        A request that fails alone ends with FinishReason.ERROR. Whatever else is raised on the way
        ends the engine: it is raised here, and every later call raises EngineDeadError.
        """
        self._check_alive()
        if not self._live:
            return []
        self._died = "a step did not complete"
        start = self._clock.now()
        step = self._scheduler.schedule(start)
        outputs = [] if step is None else self._deliver(self._compute(step))
        self._died = None
        self._note_step(step, start, self._clock.now() - start)
        return outputs

    def _note_step(self, step: ScheduledStep | None, at_s: float, step_s: float) -> None:
        self._stats.last_step_s = step_s
        self._stats.busy_s += step_s
        if step is not None and self.on_step is not None:
            record = StepRecord(
                at_s=at_s, step_s=step_s, more=bool(self._live), features=step.plan.features
            )
            self.on_step(record)

    def _compute(self, step: ScheduledStep) -> list[Advance]:
        start = self._clock.now()
        result = self.runner.execute(step.slices, step.copies)
        elapsed_s = self._clock.now() - start
        advances = self._scheduler.update(step, result, elapsed_s)
        if self._pace is not None and self._pace.follow():
            self._scheduler.limits = self._step_limits()
        return advances

    def _deliver(self, advances: list[Advance]) -> list[RequestOutput]:
        touched: dict[str, _Live] = {}
        for advance in advances:
            request_id = advance.sequence.request.request_id
            live = touched.setdefault(request_id, self._live[request_id])
            live.gained.append(self._choice(live, advance))
        return [self._output(live) for live in touched.values()]

    def _choice(self, live: _Live, advance: Advance) -> Choice:
        sequence = advance.sequence
        text = live.texts[sequence.index]
        if advance.token is None:
            choice = text.fail(advance.error if advance.error is not None else "")
        else:
            choice = text.push(advance.token, sequence.finish_reason)
        if choice.finish_reason is not None:
            live.num_unfinished -= 1
            if sequence.finish_reason is None:
                self._scheduler.finish(sequence, FinishReason.STOP)
        return choice

    def _output(self, live: _Live) -> RequestOutput:
        choices, live.gained = tuple(live.gained), []
        finished = live.num_unfinished == 0
        if finished:
            del self._live[live.request.request_id]
        return RequestOutput(
            request_id=live.request.request_id,
            choices=choices,
            finished=finished,
            num_prompt_tokens=len(live.request.prompt_token_ids),
            num_cached_tokens=live.sequences[0].num_cached,
            num_output_tokens=sum(s.num_output_tokens for s in live.sequences),
            queue_s=live.sequences[0].queue_s,
            num_preemptions=sum(s.preemptions for s in live.sequences),
        )

    # -- watching -------------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Return the numbers as they are now."""
        return self._scheduler.stats()

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off. Linear; for tests and when idle."""
        self._scheduler.check_integrity()
        for request_id, live in self._live.items():
            unfinished = sum(s.finish_reason is None for s in live.sequences)
            assert unfinished == live.num_unfinished > 0, f"{request_id} is counted wrongly"
        assert bool(self._live) == self._scheduler.has_unfinished, "a request is lost"

    def _check_alive(self) -> None:
        if self._died is not None:
            raise EngineDeadError(self._died)


def _check_usable(runner: ModelRunner) -> None:
    """Refuse a context or a pool in which no request could ever be answered."""
    if runner.max_model_len < 2:
        raise ConfigError("max_model_len", "a prompt and an answer take at least 2 tokens")
    if runner.num_blocks * runner.block_size < 2:
        raise ConfigError("num_kv_blocks", "a prompt and an answer take at least 2 tokens of room")
