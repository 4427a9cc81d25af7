"""What does vLLM do by default?

First come, first served: a deque; the last of the running gives way and waits in front.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq

from headway.sim.baselines.books import Sequence
from headway.sim.baselines.vllm import VllmScheduler
from headway.sim.scheduler import PolicySetup


class ArrivalLine:
    """Whoever waits, in the order of arrival. A `Line`."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()

    def push(self, sequence: Sequence) -> None:
        """See `Line`."""
        self._waiting[sequence.request_id] = sequence

    def put_back(self, sequence: Sequence) -> None:
        """In front of all."""
        self._waiting[sequence.request_id] = sequence
        self._waiting.move_to_end(sequence.request_id, last=False)

    def first(self) -> Sequence | None:
        """See `Line`."""
        return next(iter(self._waiting.values()), None)

    def admit(self, sequence: Sequence) -> None:
        """See `Line`."""
        del self._waiting[sequence.request_id]

    def remove(self, sequence: Sequence) -> None:
        """See `Line`."""
        del self._waiting[sequence.request_id]

    def victim(self, running: dict[str, Sequence]) -> Sequence:
        """The last that was admitted."""
        return next(reversed(running.values()))

    def generated(self, sequence: Sequence) -> None:
        """Nobody counts."""

    def waiting(self) -> Seq[Sequence]:
        """See `Line`."""
        return list(self._waiting.values())


def new_fcfs(setup: PolicySetup) -> VllmScheduler:
    """Return vLLM with `--scheduling-policy fcfs`."""
    return VllmScheduler(setup, ArrivalLine())
