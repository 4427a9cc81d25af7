"""Who waits in one tier, and how does the planner see them?"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from headway.core.cost import OutputEstimator, Prices
from headway.core.fairness import FairQueue
from headway.core.sorted_items import SortedItems
from headway.core.step import Candidate


class Sequence(Protocol):
    """What has to be known of a sequence, wherever it is kept."""

    rank: int
    """Its tier's."""
    arrival: int
    """Position in the order of arrival, unique."""
    key: float
    """Static order inside the tenant; the smallest goes first."""
    max_num_tokens: int
    """Most tokens it may ever hold."""
    last_step: int
    """The latest step that computed something of it."""
    overtaken: int
    """How often a request behind it was admitted while it did not fit."""

    @property
    def sequence_id(self) -> str:
        """Unique among those that are in the engine."""

    @property
    def tenant(self) -> str:
        """Whose it is."""

    @property
    def weight(self) -> float:
        """The tenant's, above 0."""

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
    def preemptions(self) -> int:
        """How often it lost its blocks."""


class WaitingLine:
    """The fair queue of one tier, by sequences; a `Waiting` of the planner.

    Service is charged as it is given. From its admission a sequence counts as reserved what it is
    predicted to take still, so that a tenant's claim to the next slot does not wait for decodes
    that its admitted requests are going to be charged for anyway.
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
        self._outputs = OutputEstimator()
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
            preemptions = sequence.preemptions
            yield Candidate(
                sequence_id,
                sequence.rank,
                sequence.arrival,
                sequence.num_tokens,
                sequence.max_num_tokens,
                preemptions >= self._max_preemptions,
                sequence.overtaken,
                preemptions > 0,
            )

    def push(self, sequence: Sequence) -> None:
        """Let a sequence wait at the place that its key gives it."""
        self._queue.push(
            sequence.sequence_id,
            self._tenant(sequence),
            weight=sequence.weight,
            cost=self._predicted(sequence, 0),
            key=sequence.key,
        )

    def rest(self, sequence: Sequence, until: float) -> None:
        """Let a sequence wait that is not to be admitted before `until`."""
        self._resting.push(sequence.sequence_id, until, sequence.arrival)

    def wake(self, now: float) -> None:
        """Let those take their place in the line whose rest is over."""
        while (first := self._resting.first) is not None and first[0] <= now:
            self._resting.remove(first[2])
            self.push(self._sequences[first[2]])

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, if it waits."""
        self._queue.remove(sequence.sequence_id)
        self._resting.remove(sequence.sequence_id)

    def leave(self, sequence: Sequence) -> None:
        """Take out and let go of a sequence that has ended, and learn from its length."""
        self.remove(sequence)
        self.release(sequence)
        num_output_tokens = sequence.num_tokens - sequence.num_prompt_tokens
        if num_output_tokens > 0:
            self._outputs.observe(sequence.rank, self._tenant(sequence), num_output_tokens)

    def admitted(self, sequence: Sequence, num_cached: int) -> float:
        """Take an admitted sequence out and charge its cached tokens. Returns the charge.

        What it is predicted to take beside them is reserved until it is charged.
        """
        sequence_id, tenant = sequence.sequence_id, self._tenant(sequence)
        self._queue.remove(sequence_id)
        cost = self._prices.cached * num_cached
        self._queue.charge(tenant, cost, sequence.weight)
        self.release(sequence)
        predicted = self._predicted(sequence, num_cached)
        self._queue.reserve(sequence_id, tenant, predicted, sequence.weight)
        return cost

    def charge(self, sequence: Sequence, start: int, end: int) -> float:
        """Charge for computing the tokens `start` to `end`. Returns the charge."""
        is_decode = end - start == 1 and start >= sequence.num_prompt_tokens
        cost = self._prices.decode if is_decode else self._prices.prefill * (end - start)
        tenant = sequence.tenant if self._by_tenant else ""
        self._queue.draw(sequence.sequence_id, tenant, cost, sequence.weight)
        return cost

    def charge_decodes(self, sequence: Sequence, number: int) -> float:
        """Charge for several decodes, one after the other. Returns the charge."""
        cost = self._prices.decode * number
        self._queue.draw(sequence.sequence_id, self._tenant(sequence), cost, sequence.weight)
        return cost

    def _predicted(self, sequence: Sequence, num_computed: int) -> float:
        """Return the cost of what is still to be computed, the expected answer included."""
        num_output_tokens = sequence.num_tokens - sequence.num_prompt_tokens
        most = sequence.max_num_tokens - sequence.num_prompt_tokens
        expected = self._outputs.expected(sequence.rank, self._tenant(sequence), most)
        coming, left = max(0, expected - num_output_tokens), sequence.num_tokens - num_computed
        return self._prices.prefill * left + self._prices.decode * coming

    def release(self, sequence: Sequence) -> None:
        """Drop what is reserved for a sequence that loses its blocks."""
        self._queue.release(sequence.sequence_id)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off."""
        self._queue.check_integrity()
        self._resting.check_integrity()

    def _tenant(self, sequence: Sequence) -> str:
        return sequence.tenant if self._by_tenant else ""
