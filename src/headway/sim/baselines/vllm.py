"""How does vLLM plan a step?

`vllm/v1/core/sched/scheduler.py` of 0.32, as far as it decides who runs: what runs goes first, in
the order of admission; then what waits, until the first that does not fit. A running sequence that
finds no block preempts; nothing preempts for a slot, nor for a waiting request. Whoever waits and
whom a preemption hits is the business of the line (`fcfs.py`, `vllm_priority.py`, `vtc.py`).
"""

from collections.abc import Sequence as Seq
from typing import Protocol, cast

from headway.sim.baselines.books import Books, Planned, Sequence
from headway.sim.scheduler import Emission, PolicySetup, SchedulerStats, SimRequest, SimStep


class Line(Protocol):
    """The requests that wait, and the choice between those that run."""

    def push(self, sequence: Sequence) -> None:
        """Let a request wait that has just arrived."""

    def put_back(self, sequence: Sequence) -> None:
        """Let one wait that was preempted."""

    def first(self) -> Sequence | None:
        """Return who is to be admitted next."""

    def admit(self, sequence: Sequence) -> None:
        """Take out the first, which now runs."""

    def remove(self, sequence: Sequence) -> None:
        """Take out one that is aborted, if it waits."""

    def victim(self, running: dict[str, Sequence]) -> Sequence:
        """Return which of the running is preempted when one of them finds no block."""

    def generated(self, sequence: Sequence) -> None:
        """Note that the sequence was given a token."""

    def waiting(self) -> Seq[Sequence]:
        """Return all that wait. Linear; for tests."""


class VllmScheduler:
    """One vLLM engine: chunked prefill on, recompute, no watermark, all as by default."""

    def __init__(self, setup: PolicySetup, line: Line) -> None:
        self._books = Books(setup.shape, len(setup.tiers))
        self._line = line
        self._budget = setup.shape.max_num_batched_tokens

    def add(self, request: SimRequest, now: float) -> None:
        """See `StepScheduler`."""
        self._line.push(self._books.enter(request))

    def abort(self, request_id: str) -> None:
        """See `StepScheduler`."""
        sequence = self._books.sequences.get(request_id)
        if sequence is not None:
            if request_id not in self._books.running:
                self._line.remove(sequence)
            self._books.leave(sequence)

    def num_preemptions(self, request_id: str) -> int:
        """See `StepScheduler`."""
        return self._books.sequences[request_id].num_preemptions

    def plan(self, now: float) -> SimStep | None:
        """See `StepScheduler`.

        A step in which the only one that could run preempted itself is empty in vLLM too; it costs
        next to nothing there and nothing here.
        """
        while self._books.sequences:
            planned, preempted = self._plan_running()
            if not preempted:
                self._admit(planned)
            if planned:
                return self._books.step(planned, self._budget)
        return None

    def _plan_running(self) -> tuple[Planned, bool]:
        books, left = self._books, self._budget
        planned: Planned = {}
        preempted = False
        for sequence in list(books.running.values()):
            if left == 0:
                break
            if sequence.request_id not in books.running:
                continue  # preempted by one before it
            num_tokens = min(sequence.num_left, left)
            while books.lacks(sequence, sequence.num_computed + num_tokens):
                preempted = True
                victim = self._line.victim(books.running)
                left += planned.pop(victim, 0)
                books.preempt(victim)
                self._line.put_back(victim)
                if victim is sequence:
                    return planned, preempted  # those behind it miss this step, as in vLLM
            books.grow(sequence, sequence.num_computed + num_tokens)
            planned[sequence] = num_tokens
            left -= num_tokens
        return planned, preempted

    def _admit(self, planned: Planned) -> None:
        """Admit in order while slots, tokens and the blocks of all known tokens are there.

        vLLM asks for room for all of a prompt (`scheduler_reserve_full_isl`) but takes only the
        blocks of the chunk.
        """
        books, line = self._books, self._line
        left = self._budget - sum(planned.values())
        while left > 0 and books.has_slot and (sequence := line.first()) is not None:
            if books.blocks_left(sequence) < 0:
                return
            line.admit(sequence)
            books.admit(sequence)
            num_tokens = min(sequence.num_left, left)
            books.grow(sequence, sequence.num_computed + num_tokens)
            planned[sequence] = num_tokens
            left -= num_tokens

    def done(self, step: SimStep, now: float, step_s: float) -> Seq[Emission]:
        """See `StepScheduler`."""
        planned = cast(Planned, step.token)
        emissions = self._books.settle(planned)
        if emissions:
            by_id = {sequence.request_id: sequence for sequence in planned}
            for emission in emissions:
                self._line.generated(by_id[emission.request_id])
        return emissions

    def stats(self) -> SchedulerStats:
        """See `StepScheduler`."""
        return self._books.stats()

    def check_integrity(self) -> None:
        """See `StepScheduler`."""
        self._books.check_integrity(self._line.waiting())
