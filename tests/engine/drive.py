"""How does a test drive a scheduler without a model, in virtual time?

Every step succeeds, draws token 1, and takes the time that a model of the machine says. What each
rank and tenant was served is counted in prices, by step.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count

from headway.core.predictor import StepCoefficients, StepTimePredictor
from headway.core.request import RequestState
from headway.core.step import StepLimits, TierLimits
from headway.engine.request import EngineRequest
from headway.engine.runner import SampledToken, StepResult
from headway.engine.sampling_params import SamplingParams
from headway.engine.scheduler import ScheduledStep, Scheduler
from headway.engine.sequence import Sequence
from headway.engine.stats import EngineStats
from headway.kv.cache import KVCache

BUDGET = 64
EOS = 0


@dataclass(frozen=True)
class Machine:
    """How long steps take, and what the scheduler believes."""

    actual: StepCoefficients
    prior: StepCoefficients | None = None
    """By what steps are budgeted in time; None: they are not."""
    learns: bool = True
    """Whether the scheduler is told how long steps took."""
    chunks: bool = True
    """Whether it computes a prompt in parts."""


TIMELESS = Machine(StepCoefficients(0.0))
"""Steps that take no time: for tests in which it does not matter."""


class Drive:
    """A scheduler whose every step succeeds, and what each rank and tenant was served."""

    def __init__(
        self,
        tiers: tuple[TierLimits, ...],
        *,
        num_blocks: int = 4096,
        slots: int = 64,
        caching: bool = False,
        budget: int = BUDGET,
        machine: Machine = TIMELESS,
        max_preemptions: int = 3,
        fcfs: bool = False,
    ) -> None:
        limits = StepLimits(slots, budget, tiers, enable_chunked_prefill=machine.chunks)
        self.kv = KVCache(num_blocks, 16, enable_prefix_caching=caching)
        self.stats = EngineStats(max_num_seqs=slots, num_blocks=num_blocks, block_size=16)
        self.scheduler = Scheduler(
            self.kv,
            limits,
            frozenset([EOS]),
            self.stats,
            num_ranks=len(tiers),
            fcfs=fcfs,
            max_preemptions=max_preemptions,
            predictor=None if machine.prior is None else StepTimePredictor(machine.prior),
        )
        self.now = 0.0
        self.machine = machine
        self.sequences: dict[str, Sequence] = {}
        self.serial = count()
        self.service: list[list[float]] = []
        """By step and rank, in prices."""
        self.by_tenant: Counter[str] = Counter()
        self.emitted: list[tuple[float, str]] = []
        """When which sequence got a token, in order."""

    def add(
        self,
        rank: int,
        size: int,
        length: int,
        tenant: str = "",
        weight: float = 1.0,
        *,
        first_token: int = 1,
        answers: int = 1,
    ) -> Sequence:
        """Let a request wait; return the first of its sequences.

        Prompts of one tenant that begin with the same token share their prefix.
        """
        number = next(self.serial)
        prompt = (first_token,) + (1,) * (size - 1)
        wanted = EngineRequest(
            request_id=f"r{number}",
            prompt_token_ids=prompt,
            params=SamplingParams(max_tokens=length, ignore_eos=True, n=answers),
            rank=rank,
            tenant=tenant,
            weight=weight,
        )
        sequences = [
            Sequence(
                sequence_id=f"r{number}/{index}",
                request=wanted,
                index=index,
                rank=rank,
                arrival=number * 8 + index,
                key=float(number),
                seed=0,
                max_tokens=length,
                token_ids=list(prompt),
                arrived_s=self.now,
            )
            for index in range(answers)
        ]
        self.sequences |= {sequence.sequence_id: sequence for sequence in sequences}
        self.scheduler.add(sequences, self.now)
        return sequences[0]

    def step(self, failing: Collection[str] = ()) -> ScheduledStep:
        """Run a step, of which there must be one. Those of `failing` that it computes fail."""
        step = self.scheduler.schedule(self.now)
        assert step is not None
        self.carry_out(step, failing)
        if len(self.service) % (1 + self.kv.num_blocks // 128) == 0:
            # Linear in blocks, so the more rarely the more there are.
            self.scheduler.check_integrity()
        return step

    def carry_out(self, step: ScheduledStep, failing: Collection[str] = ()) -> None:
        """Let the machine compute what was planned, and book it."""
        took_s = self.machine.actual.time_s(step.plan.features)
        self.now += took_s
        served = [0.0] * len(self.scheduler.limits.tiers)
        sampled = {}
        for computed in step.slices:
            sequence = self.sequences[computed.sequence_id]
            is_decode = computed.start >= sequence.num_prompt_tokens
            cost = 2.0 if is_decode else float(computed.end - computed.start)
            served[sequence.rank] += cost
            self.by_tenant[sequence.request.tenant] += int(cost)
            if computed.sample:
                sampled[computed.sequence_id] = SampledToken(1)
                self.emitted.append((self.now, computed.sequence_id))
        self.service.append(served)
        failed = {name: "failed" for name in sampled if name in failing}
        elapsed_s = took_s if self.machine.learns else None
        self.scheduler.update(step, StepResult(sampled, failed), elapsed_s)

    def keep_waiting(
        self, rank: int, size: int, length: int, tenant: str = "", *, most: int = 3
    ) -> None:
        """Add requests of a tenant until `most` wait; forget those that have finished."""
        waiting = [
            s
            for s in self.sequences.values()
            if s.state is RequestState.WAITING and (s.rank, s.request.tenant) == (rank, tenant)
        ]
        for _ in range(most - len(waiting)):
            self.add(rank, size, length, tenant)
        finished = [i for i, s in self.sequences.items() if s.state is RequestState.FINISHED]
        for sequence_id in finished:
            del self.sequences[sequence_id]
