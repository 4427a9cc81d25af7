"""What does Sarathi-Serve do?

Stall-free batching (OSDI'24): the decodes of all, then chunks of the prefills that have started,
then new ones, together at most `chunk_size` tokens. A prompt gets all its blocks at admission,
which leaves 1 % of the pool free; a decode that finds no block preempts the last of the running.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import cast

from headway.core.sorted_items import SortedItems
from headway.errors import ConfigError
from headway.sim.baselines.books import Books, Planned, Sequence
from headway.sim.scheduler import Emission, PolicySetup, SchedulerStats, SimRequest, SimStep

CHUNK_KNOB, CHUNK_SIZE = "chunk_size", 512
"""The knob and its default: most tokens in a step."""
WATERMARK = 0.01
"""Share of the blocks that an admission leaves free, unless nobody runs."""


def chunk_size(knobs: Mapping[str, float]) -> int:
    """Return the knob. Raises ConfigError when it is not a whole number of at least 1."""
    size = knobs.get(CHUNK_KNOB, CHUNK_SIZE)
    if size < 1 or size != int(size):
        text = f"must be a whole number of at least 1, got {size:g}"
        raise ConfigError(f"policy.{CHUNK_KNOB}", text)
    return int(size)


class SarathiScheduler:
    """One Sarathi-Serve engine. `urgency` says who is before whom; equals go by arrival.

    With `urgency` the same for all, whatever has started is before whatever waits.
    """

    def __init__(self, setup: PolicySetup, urgency: Callable[[SimRequest], float]) -> None:
        self._chunk_size = min(chunk_size(setup.knobs), setup.shape.max_num_batched_tokens)
        # No decode is ever left out, so no more may run than a step has tokens.
        max_num_seqs = min(setup.shape.max_num_seqs, self._chunk_size)
        shape = replace(setup.shape, max_num_seqs=max_num_seqs)
        self._books = Books(shape, len(setup.tiers))
        self._watermark = int(WATERMARK * shape.num_blocks)
        self._urgency = urgency
        self._waiting: SortedItems[Sequence] = SortedItems()

    def add(self, request: SimRequest, now: float) -> None:
        """See `StepScheduler`."""
        self._wait(self._books.enter(request))

    def _wait(self, sequence: Sequence) -> None:
        self._waiting.push(sequence, *self._place(sequence))

    def _place(self, sequence: Sequence) -> tuple[float, int]:
        return self._urgency(sequence.request), sequence.order

    def abort(self, request_id: str) -> None:
        """See `StepScheduler`."""
        sequence = self._books.sequences.get(request_id)
        if sequence is not None:
            self._waiting.remove(sequence)
            self._books.leave(sequence)

    def num_preemptions(self, request_id: str) -> int:
        """See `StepScheduler`."""
        return self._books.sequences[request_id].num_preemptions

    def plan(self, now: float) -> SimStep | None:
        """See `StepScheduler`."""
        planned: Planned = {}
        started = self._plan_decodes(planned)
        self._plan_prefills(planned, started)
        return self._books.step(planned, self._chunk_size)

    def _plan_decodes(self, planned: Planned) -> deque[Sequence]:
        """Plan all decodes; return the prefills that have started, in order."""
        books = self._books
        running = deque(sorted(books.running.values(), key=self._place))
        started: deque[Sequence] = deque()
        while running:
            sequence = running.popleft()
            if sequence.num_left > 1:
                started.append(sequence)
                continue
            while books.lacks(sequence, sequence.num_tokens):
                victim = running.pop() if running else sequence
                books.preempt(victim)
                self._wait(victim)
                if victim is sequence:
                    break
            else:
                books.grow(sequence, sequence.num_tokens)
                planned[sequence] = 1
        return started

    def _plan_prefills(self, planned: Planned, started: deque[Sequence]) -> None:
        """Fill up with prefills, waiting ones until the first that does not fit."""
        left = self._chunk_size - len(planned)
        head = self._waiting.first
        while left > 0 and (started or head):
            if head is None or (started and self._place(started[0]) < head[:2]):
                sequence = started.popleft()
            elif self._try_to_admit(head[2]):
                sequence = head[2]
                head = self._waiting.first
            else:
                head = None
                continue
            planned[sequence] = min(sequence.num_left, left)
            left -= planned[sequence]

    def _try_to_admit(self, sequence: Sequence) -> bool:
        books = self._books
        kept = self._watermark if books.running else 0
        if not books.has_slot or books.blocks_left(sequence) < kept:
            return False
        self._waiting.remove(sequence)
        books.admit(sequence)
        books.grow(sequence, sequence.num_tokens)
        return True

    def done(self, step: SimStep, now: float, step_s: float) -> Seq[Emission]:
        """See `StepScheduler`."""
        return self._books.settle(cast(Planned, step.token))

    def stats(self) -> SchedulerStats:
        """See `StepScheduler`."""
        return self._books.stats()

    def check_integrity(self) -> None:
        """See `StepScheduler`."""
        self._books.check_integrity([sequence for _, _, sequence in self._waiting.in_order()])


def new_sarathi(setup: PolicySetup) -> SarathiScheduler:
    """Return Sarathi-Serve, first come, first served."""
    return SarathiScheduler(setup, lambda request: 0.0)
