"""What does a baseline's engine hold, and what has it computed?

The one piece that all baselines share. A policy decides who runs; the books keep slots, blocks and
tokens, and turn what it planned into a step. Blocks are counted as they are for headway, prefix
cache and all, so that policies are compared and nothing else. A preempted sequence loses its blocks
and computes again what the cache no longer has (vLLM and Sarathi-Serve: recompute).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from headway.core.predictor import StepFeatures
from headway.sim.counted_tokens import CountedTokens
from headway.sim.counting_kv import CountingKV
from headway.sim.scheduler import Emission, EngineShape, SchedulerStats, SimRequest, SimStep


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine."""

    request: SimRequest
    order: int
    """Position in the order in which requests reached this engine."""
    tokens: CountedTokens
    num_tokens: int
    """Known tokens: the prompt and what was generated."""
    num_computed: int = 0
    capacity: int = 0
    """Tokens that its blocks can hold."""
    most_computed: int = 0
    """The largest `num_computed` that a preemption has taken back."""
    num_cached: int = 0
    """Prompt tokens that the first admission found in the cache."""
    num_preemptions: int = 0

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def num_left(self) -> int:
        """Known tokens still to compute; 1 is a decode."""
        return self.num_tokens - self.num_computed

    @property
    def num_generated(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.request.num_prompt_tokens


Planned = dict[Sequence, int]
"""Tokens to compute in a step, by sequence."""


class Books:
    """Slots, blocks and tokens of one engine. The policy keeps the line of those that wait."""

    def __init__(self, shape: EngineShape, num_ranks: int) -> None:
        self.shape = shape
        caching = shape.enable_prefix_caching
        self._kv = CountingKV(shape.num_blocks, shape.block_size, enable_prefix_caching=caching)
        self.sequences: dict[str, Sequence] = {}
        self.running: dict[str, Sequence] = {}
        """Those that hold a slot, in the order in which they got it."""
        self._num_ranks = num_ranks
        self._running = [0] * num_ranks
        self._waiting = [0] * num_ranks
        self._num_added = 0
        self._num_preemptions = 0
        self._num_recomputed = 0
        self._num_parked = 0

    def enter(self, request: SimRequest) -> Sequence:
        """Take in a request, which waits."""
        self._num_added += 1
        length = request.num_prompt_tokens
        tokens = CountedTokens(length, request.prefix_id, request.num_prefix_tokens)
        sequence = Sequence(request, self._num_added, tokens, length)
        self.sequences[request.request_id] = sequence
        self._waiting[request.rank] += 1
        return sequence

    def leave(self, sequence: Sequence) -> None:
        """Forget a sequence, whether it runs or waits."""
        del self.sequences[sequence.request_id]
        if self.running.pop(sequence.request_id, None) is None:
            self._waiting[sequence.request.rank] -= 1
        else:
            self._running[sequence.request.rank] -= 1
            self._release(sequence)

    # -- slots and blocks -----------------------------------------------------------------------

    @property
    def has_slot(self) -> bool:
        """Whether one more may run."""
        return len(self.running) < self.shape.max_num_seqs

    def lacks(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether too few blocks are there for a running sequence to hold `num_tokens`."""
        if num_tokens <= sequence.capacity:
            return False
        need = self._kv.blocks_to_grow(sequence.request_id, sequence.num_computed, num_tokens)
        return need > self._kv.num_available

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Give a running sequence the blocks that it lacks to hold `num_tokens`."""
        if num_tokens > sequence.capacity:
            self._kv.grow(sequence.request_id, sequence.num_computed, num_tokens)
            size = self.shape.block_size
            sequence.capacity = -(-num_tokens // size) * size

    def blocks_left(self, sequence: Sequence) -> int:
        """Return how many blocks would be left if a waiting sequence held all its known tokens.

        Below 0: so many are lacking.
        """
        match = self._kv.match(sequence.request.tenant, sequence.tokens)
        size = self.shape.block_size
        need = -(-sequence.num_tokens // size) - match.num_tokens // size + match.num_evictable
        return self._kv.num_available - need

    def admit(self, sequence: Sequence) -> None:
        """Give a slot to a sequence that waits; what the cache has of it is computed."""
        assert self.has_slot, "more sequences run than there are slots"
        self.running[sequence.request_id] = sequence
        self._waiting[sequence.request.rank] -= 1
        self._running[sequence.request.rank] += 1
        tokens = sequence.tokens
        sequence.num_computed = sequence.capacity = self._kv.admit(
            sequence.request_id,
            sequence.request.tenant,
            tokens,
            max_cached_tokens=len(tokens) - 1,
        )
        if sequence.num_preemptions == 0:
            sequence.num_cached = sequence.num_computed

    def preempt(self, sequence: Sequence) -> None:
        """Take slot and blocks away; the sequence waits again with nothing computed."""
        del self.running[sequence.request_id]
        self._running[sequence.request.rank] -= 1
        self._waiting[sequence.request.rank] += 1
        self._release(sequence)
        sequence.most_computed = max(sequence.most_computed, sequence.num_computed)
        sequence.num_computed = sequence.capacity = 0
        sequence.num_preemptions += 1
        self._num_preemptions += 1

    def _release(self, sequence: Sequence) -> None:
        self._kv.commit(sequence.request_id, sequence.tokens, sequence.num_computed)
        self._kv.free(sequence.request_id)

    # -- steps ----------------------------------------------------------------------------------

    def step(self, planned: Planned, budget_tokens: int) -> SimStep | None:
        """Return the step that computes `planned`; None when that is nothing."""
        if not planned:
            return None
        self._num_parked += len(self.running) - len(planned)
        by_rank = [0] * self._num_ranks
        for sequence, num_tokens in planned.items():
            by_rank[sequence.request.rank] += num_tokens
        slices = [(num_tokens, each.num_computed) for each, num_tokens in planned.items()]
        features = StepFeatures.of(slices)
        return SimStep(features, tuple(by_rank), planned, budget_tokens)

    def settle(self, planned: Planned) -> list[Emission]:
        """Book what a step computed and let those that are complete leave."""
        emissions = []
        for sequence, num_tokens in planned.items():
            if self.running.get(sequence.request_id) is not sequence:
                continue  # aborted meanwhile
            start = sequence.num_computed
            sequence.num_computed += num_tokens
            if start < sequence.most_computed:
                self._num_recomputed += min(num_tokens, sequence.most_computed - start)
            if start < sequence.tokens.num_prefix_tokens:
                self._kv.commit(sequence.request_id, sequence.tokens, sequence.num_computed)
            if sequence.num_computed == sequence.num_tokens:
                emissions.append(self._generate(sequence))
        return emissions

    def _generate(self, sequence: Sequence) -> Emission:
        sequence.tokens.append(0)
        sequence.num_tokens += 1
        if sequence.num_generated < sequence.request.num_output_tokens:
            return Emission(sequence.request_id, finished=False)
        self.leave(sequence)
        return Emission(sequence.request_id, True, sequence.num_cached, sequence.num_preemptions)

    # -- watching -------------------------------------------------------------------------------

    def stats(self) -> SchedulerStats:
        """Return the numbers as they are now."""
        return SchedulerStats(
            running=tuple(self._running),
            waiting=tuple(self._waiting),
            kv_used=self._kv.num_held / self.shape.num_blocks,
            num_preemptions=self._num_preemptions,
            num_recomputed_tokens=self._num_recomputed,
            num_parked=self._num_parked,
        )

    def check_integrity(self, waiting: Seq[Sequence]) -> None:
        """Raise AssertionError that names what is off (G7, G9). `waiting`: the policy's line."""
        self._kv.check_integrity()
        if not self.running:
            assert self._kv.num_held == 0, "nobody runs, and blocks are held"
        assert len(self.running) <= self.shape.max_num_seqs, "more sequences run than slots"
        for sequence in self.running.values():
            enough = sequence.num_computed <= sequence.capacity
            assert enough, f"{sequence.request_id} computed more than it holds"
            assert self._kv.resident(sequence.request_id), f"{sequence.request_id} holds nothing"
        places = {*self.running.values(), *waiting}
        assert places == set(self.sequences.values()), "somebody is known nowhere, or not known"
        assert len(places) == len(self.running) + len(waiting), "somebody both runs and waits"
        assert all(s.num_computed == 0 for s in waiting), "a waiting one holds"
        for counts, there in ((self._running, self.running.values()), (self._waiting, waiting)):
            for rank, count in enumerate(counts):
                assert count == sum(s.request.rank == rank for s in there), "miscounted by rank"
