"""What does a baseline's engine hold, and what has it computed?

The one piece that all baselines share. A policy decides who runs; the books keep slots, blocks and
tokens, and turn what it planned into a step. A preempted sequence loses all its blocks and computes
its known tokens again (vLLM and Sarathi-Serve: recompute).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from headway.core.predictor import StepFeatures
from headway.sim.scheduler import Emission, EngineShape, SchedulerStats, SimRequest, SimStep


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine."""

    request: SimRequest
    order: int
    """Position in the order in which requests reached this engine."""
    num_tokens: int
    """Known tokens: the prompt and what was generated."""
    num_computed: int = 0
    num_blocks: int = 0
    most_computed: int = 0
    """The largest `num_computed` that a preemption has taken back."""

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
        self.free_blocks = shape.num_blocks
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
        sequence = Sequence(request, self._num_added, request.num_prompt_tokens)
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
        self._give_back(sequence)

    # -- slots and blocks -----------------------------------------------------------------------

    @property
    def has_slot(self) -> bool:
        """Whether one more may run."""
        return len(self.running) < self.shape.max_num_seqs

    def blocks(self, num_tokens: int) -> int:
        """Return the blocks of so many tokens."""
        return -(-num_tokens // self.shape.block_size)

    def lacks(self, sequence: Sequence, num_tokens: int) -> bool:
        """Whether there are too few free blocks for the sequence to hold `num_tokens`."""
        return self.blocks(num_tokens) - sequence.num_blocks > self.free_blocks

    def grow(self, sequence: Sequence, num_tokens: int) -> None:
        """Give the sequence the blocks that it lacks to hold `num_tokens`."""
        num_more = self.blocks(num_tokens) - sequence.num_blocks
        if num_more > 0:
            sequence.num_blocks += num_more
            self.free_blocks -= num_more
        assert self.free_blocks >= 0, "more blocks are held than there are"

    def _give_back(self, sequence: Sequence) -> None:
        self.free_blocks += sequence.num_blocks
        sequence.num_blocks = 0

    def admit(self, sequence: Sequence) -> None:
        """Give a slot to a sequence that waits."""
        assert self.has_slot, "more sequences run than there are slots"
        self.running[sequence.request_id] = sequence
        self._waiting[sequence.request.rank] -= 1
        self._running[sequence.request.rank] += 1

    def preempt(self, sequence: Sequence) -> None:
        """Take slot and blocks away; the sequence waits again with nothing computed."""
        del self.running[sequence.request_id]
        self._running[sequence.request.rank] -= 1
        self._waiting[sequence.request.rank] += 1
        self._give_back(sequence)
        sequence.most_computed = max(sequence.most_computed, sequence.num_computed)
        sequence.num_computed = 0
        self._num_preemptions += 1

    # -- steps ----------------------------------------------------------------------------------

    def step(self, planned: Planned, budget_tokens: int) -> SimStep | None:
        """Return the step that computes `planned`; None when that is nothing."""
        if not planned:
            return None
        self._num_parked += len(self.running) - len(planned)
        by_rank = [0] * self._num_ranks
        num_prefills = decode_context = prefill_context = 0
        prefill_work = 0.0
        for sequence, num_tokens in planned.items():
            context = sequence.num_computed
            by_rank[sequence.request.rank] += num_tokens
            if sequence.num_tokens - context == 1:
                decode_context += context
            else:
                num_prefills += 1
                prefill_context += context
                prefill_work += num_tokens * (context + num_tokens / 2)
        features = StepFeatures(
            num_tokens=sum(by_rank),
            num_decodes=len(planned) - num_prefills,
            num_prefills=num_prefills,
            decode_context=decode_context,
            prefill_context=prefill_context,
            prefill_work=prefill_work,
        )
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
            if sequence.num_computed == sequence.num_tokens:
                sequence.num_tokens += 1
                finished = sequence.num_generated == sequence.request.num_output_tokens
                if finished:
                    self.leave(sequence)
                emissions.append(Emission(sequence.request_id, finished))
        return emissions

    # -- watching -------------------------------------------------------------------------------

    def stats(self) -> SchedulerStats:
        """Return the numbers as they are now."""
        return SchedulerStats(
            running=tuple(self._running),
            waiting=tuple(self._waiting),
            kv_used=1 - self.free_blocks / self.shape.num_blocks,
            num_preemptions=self._num_preemptions,
            num_recomputed_tokens=self._num_recomputed,
            num_parked=self._num_parked,
        )

    def check_integrity(self, waiting: Seq[Sequence]) -> None:
        """Raise AssertionError that names what is off (G7, G9). `waiting`: the policy's line."""
        held = sum(sequence.num_blocks for sequence in self.sequences.values())
        assert held + self.free_blocks == self.shape.num_blocks, "blocks are lost or held twice"
        assert self.free_blocks >= 0, "more blocks are held than there are"
        assert len(self.running) <= self.shape.max_num_seqs, "more sequences run than slots"
        for sequence in self.running.values():
            enough = self.blocks(sequence.num_computed) <= sequence.num_blocks
            assert enough, f"{sequence.request_id} computed more than it holds"
        places = {*self.running.values(), *waiting}
        assert places == set(self.sequences.values()), "somebody is known nowhere, or not known"
        assert len(places) == len(self.running) + len(waiting), "somebody both runs and waits"
        assert all(s.num_blocks == s.num_computed == 0 for s in waiting), "a waiting one holds"
        for counts, there in ((self._running, self.running.values()), (self._waiting, waiting)):
            for rank, count in enumerate(counts):
                assert count == sum(s.request.rank == rank for s in there), "miscounted by rank"
