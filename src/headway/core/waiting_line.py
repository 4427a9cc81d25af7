"""Who waits in one tier, and how does the planner see them?"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from headway.core.cost import Prices
from headway.core.fairness import FairQueue
from headway.core.sorted_items import SortedItems
from headway.core.step import Candidate


class Sequence(Protocol):
    """What has to be known of a sequence, wherever it is kept."""

    @property
    def sequence_id(self) -> str:
        """Unique among those that are in the engine."""

    @property
    def rank(self) -> int:
        """Its tier's."""

    @property
    def tenant(self) -> str:
        """Whose it is."""

    @property
    def weight(self) -> float:
        """The tenant's, above 0."""

    @property
    def arrival(self) -> int:
        """Position in the order of arrival, unique."""

    @property
    def key(self) -> float:
        """Static order inside the tenant; the smallest goes first."""

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""

    @property
    def num_tokens(self) -> int:
        """Known tokens, prompt and output."""

    @property
    def num_computed(self) -> int:
        """Known tokens whose keys and values are there."""

    @property
    def max_num_tokens(self) -> int:
        """Most tokens it may ever hold."""

    @property
    def preemptions(self) -> int:
        """How often it lost its blocks."""

    @property
    def overtaken(self) -> int:
        """How often a request behind it was admitted while it did not fit."""


class WaitingLine:
    """The fair queue of one tier, by sequences; a `Waiting` of the planner.

    Service is charged as it is given. From admission until its prompt is computed, a sequence's
    prompt counts as reserved, so that one tenant's burst is not admitted whole in one step.
    """

    def __init__(
        self,
        sequences: Mapping[str, Sequence],
        prices: Prices,
        max_preemptions: int,
        *,
        by_tenant: bool,
    ) -> None:
        self._sequences = sequences
        self._prices = prices
        self._max_preemptions = max_preemptions
        self._by_tenant = by_tenant
        self._queue = FairQueue()
        self._resting: SortedItems[str] = SortedItems()

    def __len__(self) -> int:
        """Return how many may be admitted."""
        return len(self._queue)

    def __contains__(self, sequence_id: object) -> bool:
        """Return whether the sequence waits, resting or not."""
        return sequence_id in self._queue or sequence_id in self._resting

    @property
    def num_waiting(self) -> int:
        """How many wait, those at rest included."""
        return len(self._queue) + len(self._resting)

    def in_order(self) -> Iterator[Candidate]:
        """Yield who is to be admitted next, lazily."""
        for sequence_id in self._queue.in_order():
            sequence = self._sequences[sequence_id]
            yield Candidate(
                sequence_id=sequence_id,
                rank=sequence.rank,
                arrival=sequence.arrival,
                num_tokens=sequence.num_tokens,
                max_num_tokens=sequence.max_num_tokens,
                protected=sequence.preemptions >= self._max_preemptions,
                overtaken=sequence.overtaken,
                was_preempted=sequence.preemptions > 0,
            )

    def push(self, sequence: Sequence) -> None:
        """Let a sequence wait at the place that its key gives it."""
        self._queue.push(
            sequence.sequence_id,
            self._tenant(sequence),
            weight=sequence.weight,
            cost=self._prices.prefill * sequence.num_tokens,
            key=sequence.key,
        )

    def rest(self, sequence: Sequence, until: float) -> None:
        """Let a sequence wait that is not to be admitted before `until`."""
        self._resting.push(sequence.sequence_id, until, sequence.arrival)

    def wake(self, now: float) -> None:
        """Let those take their place in the line whose rest is over."""
        while (first := self._resting.peek()) is not None and first[0] <= now:
            self._resting.remove(first[2])
            self.push(self._sequences[first[2]])

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, if it waits."""
        self._queue.remove(sequence.sequence_id)
        self._resting.remove(sequence.sequence_id)

    def admitted(self, sequence: Sequence, num_cached: int) -> float:
        """Take an admitted sequence out and charge its cached tokens. Returns the charge."""
        self._queue.remove(sequence.sequence_id)
        cost = self._prices.cached * num_cached
        self._queue.charge(self._tenant(sequence), cost, sequence.weight)
        self.reserve(sequence)
        return cost

    def charge(self, sequence: Sequence, start: int, end: int) -> float:
        """Charge for computing the tokens `start` to `end`. Returns the charge."""
        is_decode = end - start == 1 and start >= sequence.num_prompt_tokens
        cost = self._prices.decode if is_decode else self._prices.prefill * (end - start)
        self._queue.charge(self._tenant(sequence), cost, sequence.weight)
        if not is_decode:
            self.reserve(sequence)
        return cost

    def charge_decodes(self, tenant: str, weight: float, number: int) -> float:
        """Charge a tenant for several decodes at once. Returns the charge."""
        cost = self._prices.decode * number
        self._queue.charge(tenant if self._by_tenant else "", cost, weight)
        return cost

    def reserve(self, sequence: Sequence) -> None:
        """Reserve for the known tokens still to compute; a lone one is charged when computed."""
        self.release(sequence)
        num_left = sequence.num_tokens - sequence.num_computed
        if num_left > 1:
            cost = self._prices.prefill * num_left
            tenant = self._tenant(sequence)
            self._queue.reserve(sequence.sequence_id, tenant, cost, sequence.weight)

    def release(self, sequence: Sequence) -> None:
        """Drop what is reserved for a sequence that leaves."""
        self._queue.release(sequence.sequence_id)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off."""
        self._queue.check_integrity()
        self._resting.check_integrity()

    def _tenant(self, sequence: Sequence) -> str:
        return sequence.tenant if self._by_tenant else ""
