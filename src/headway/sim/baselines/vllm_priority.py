"""What does vLLM's own priority do?

One heap on (priority, arrival) decides who is admitted next, and the least urgent, youngest of the
running gives way when a running one finds no block. That is all: what runs is not ordered by
priority, and an urgent request waits for a slot like any other.
"""

from collections.abc import Sequence as Seq

from headway.core.sorted_items import SortedItems
from headway.sim.baselines.books import Sequence
from headway.sim.baselines.vllm import VllmScheduler
from headway.sim.scheduler import PolicySetup


class PriorityLine:
    """Whoever waits, by rank and then by arrival. A `Line`."""

    def __init__(self) -> None:
        self._waiting: SortedItems[Sequence] = SortedItems()

    def push(self, sequence: Sequence) -> None:
        """See `Line`."""
        self._waiting.push(sequence, sequence.request.rank, sequence.order)

    def put_back(self, sequence: Sequence) -> None:
        """At the place that it had."""
        self.push(sequence)

    def first(self) -> Sequence | None:
        """See `Line`."""
        head = self._waiting.first
        return None if head is None else head[2]

    def admit(self, sequence: Sequence) -> None:
        """See `Line`."""
        self._waiting.remove(sequence)

    def remove(self, sequence: Sequence) -> None:
        """See `Line`."""
        self._waiting.remove(sequence)

    def victim(self, running: dict[str, Sequence]) -> Sequence:
        """The least urgent, of those the youngest; maybe the one that asks."""
        return max(running.values(), key=lambda sequence: (sequence.request.rank, sequence.order))

    def generated(self, sequence: Sequence) -> None:
        """Nobody counts."""

    def waiting(self) -> Seq[Sequence]:
        """See `Line`."""
        return [sequence for _, _, sequence in self._waiting.in_order()]


def new_vllm_priority(setup: PolicySetup) -> VllmScheduler:
    """Return vLLM with `--scheduling-policy priority`."""
    return VllmScheduler(setup, PriorityLine())
