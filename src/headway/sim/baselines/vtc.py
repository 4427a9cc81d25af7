"""What does the virtual token counter do, without tiers?

VTC (OSDI'24) in front of vLLM's steps: a counter per tenant, charged 1 per prompt token when a
request is first admitted and 2 per generated token, by weight; the tenant with the lowest counter
goes next, with its oldest request. Who joins with nothing waiting is lifted to the lowest counter
of those who wait.
"""

from collections.abc import Sequence as Seq

from headway.core.sorted_items import SortedItems
from headway.sim.baselines.books import Sequence
from headway.sim.baselines.fcfs import ArrivalLine
from headway.sim.baselines.vllm import VllmScheduler
from headway.sim.scheduler import PolicySetup

INPUT_PRICE = 1.0
OUTPUT_PRICE = 2.0


class CounterLine:
    """Whoever waits, by tenant. A `Line`."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._lines: dict[str, ArrivalLine] = {}
        self._tenants: SortedItems[str] = SortedItems()
        """Tenants with a line, by counter, then by who was seen first."""
        self._seen: dict[str, int] = {}

    def push(self, sequence: Sequence) -> None:
        """See `Line`."""
        self._line(sequence).push(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """In front of its tenant's others."""
        self._line(sequence).put_back(sequence)

    def _line(self, sequence: Sequence) -> ArrivalLine:
        tenant = sequence.request.tenant
        if tenant not in self._lines:
            self._seen.setdefault(tenant, len(self._seen))
            lowest = self._tenants.first
            counter = self._counters.get(tenant, 0.0)
            self._counters[tenant] = counter if lowest is None else max(counter, lowest[0])
            self._lines[tenant] = ArrivalLine()
            self._place(tenant)
        return self._lines[tenant]

    def _place(self, tenant: str) -> None:
        self._tenants.push(tenant, self._counters[tenant], self._seen[tenant])

    def first(self) -> Sequence | None:
        """See `Line`."""
        lowest = self._tenants.first
        return None if lowest is None else self._lines[lowest[2]].first()

    def admit(self, sequence: Sequence) -> None:
        """A prompt is charged once, however often it is preempted."""
        self.remove(sequence)
        if sequence.num_generated == 0 and sequence.most_computed == 0:
            self._charge(sequence, INPUT_PRICE * sequence.request.num_prompt_tokens)

    def remove(self, sequence: Sequence) -> None:
        """See `Line`."""
        tenant = sequence.request.tenant
        line = self._lines[tenant]
        line.remove(sequence)
        if line.first() is None:
            del self._lines[tenant]
            self._tenants.remove(tenant)

    def victim(self, running: dict[str, Sequence]) -> Sequence:
        """The last that was admitted."""
        return next(reversed(running.values()))

    def generated(self, sequence: Sequence) -> None:
        """See `Line`."""
        self._charge(sequence, OUTPUT_PRICE)

    def _charge(self, sequence: Sequence, cost: float) -> None:
        tenant = sequence.request.tenant
        self._counters[tenant] += cost / sequence.request.weight
        if tenant in self._lines:
            self._place(tenant)

    def waiting(self) -> Seq[Sequence]:
        """See `Line`."""
        return [sequence for line in self._lines.values() for sequence in line.waiting()]


def new_vtc(setup: PolicySetup) -> VllmScheduler:
    """Return VTC over vLLM's steps."""
    return VllmScheduler(setup, CounterLine())
