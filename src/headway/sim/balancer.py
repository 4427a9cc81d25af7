"""Where does a request go when nothing queues it before the nodes?

To the node with the fewest, as it comes: what stands before engines that keep their own queue.
"""

from collections import deque
from collections.abc import Sequence

from headway.core.outcome import Outcome
from headway.sim.call import Call
from headway.sim.gateway import Door
from headway.sim.node import SimNode


class Balancer:
    """Sends each call to the node with the fewest; calls wait only while no node is up."""

    def __init__(self, num_ranks: int, num_nodes: int, door: Door) -> None:
        self._door = door
        self._num_ranks = num_ranks
        self._inflight = [0] * num_nodes
        self._up = [True] * num_nodes
        self._held: deque[Call] = deque()

    def submit(self, call: Call, now: float) -> None:
        """See `Gateway`."""
        fewest = min(
            (index for index, up in enumerate(self._up) if up),
            key=self._inflight.__getitem__,
            default=None,
        )
        if fewest is None:
            self._held.append(call)
            return
        self._inflight[fewest] += 1
        self._door.send(call, fewest, now)

    def submit_again(self, call: Call, now: float) -> None:
        """See `Gateway`."""
        self._inflight[call.node] -= 1
        call.node = -1
        self.submit(call, now)

    def settle(self, call: Call, num_cached: int, now: float, *, completed: bool) -> None:
        """See `Gateway`."""
        self._inflight[call.node] -= 1

    def tokens(self, calls: Sequence[Call], now: float) -> None:
        """See `Gateway`."""

    def observe(self, nodes: Sequence[SimNode], now: float) -> None:
        """See `Gateway`."""

    def limit(self) -> int | None:
        """See `Gateway`."""
        return None

    def cancel(self, call: Call, now: float) -> None:
        """See `Gateway`."""
        if call in self._held:
            self._held.remove(call)

    def pump(self, now: float) -> None:
        """See `Gateway`."""
        while self._held and any(self._up):
            self.submit(self._held.popleft(), now)

    def node_down(self, index: int, now: float) -> None:
        """See `Gateway`."""
        self._up[index] = False

    def node_up(self, index: int, now: float) -> None:
        """See `Gateway`."""
        self._up[index] = True
        self.pump(now)

    def shed_all(self, now: float) -> None:
        """See `Gateway`."""
        while self._held:
            self._door.end(self._held.popleft(), Outcome.EVICTED_SHUTTING_DOWN, now)

    def waiting(self) -> Sequence[int]:
        """See `Gateway`."""
        depths = [0] * self._num_ranks
        for call in self._held:
            depths[call.rank] += 1
        return depths

    def woken(self) -> None:
        """See `Gateway`."""

    def check_idle(self) -> None:
        """See `Gateway`."""
        assert not self._held, "calls still wait"
        assert not any(self._inflight), f"calls are still counted: {self._inflight}"
