"""Which nodes may be sent to, and which of them gets the request?

A node that was never heard of is neither full nor free: it is used at a careful limit. One missed
answer proves nothing; a refused connection does, and so do several failures in a row. A node that
is out comes back when a probe finds it well, and after failed requests it has to serve one request
before it gets more.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum

from headway.core.tier import Tiers
from headway.flowcontrol.credits import free_credits, node_limit, tier_ceilings

FAILURES_UNTIL_DOWN = 3
MAX_HOLD_S = 30.0
"""Longest time that a node's own Retry-After is obeyed."""


class NodeState(StrEnum):
    """What is known of a node."""

    UNKNOWN = "unknown"
    UP = "up"
    PROBATION = "probation"
    """A probe finds it well, but its last requests failed: one request at a time."""
    DOWN = "down"


class Node:
    """One node: what it takes, what it has in flight, and whether it is well."""

    def __init__(self, name: str, url: str, tiers: Tiers, max_inflight: int | None = None) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.state = NodeState.UNKNOWN
        self.models: tuple[str, ...] = ()
        """The models it last said it serves."""
        self.inflight = [0] * len(tiers)
        self.held_until = 0.0
        self.failures = 0
        """Requests that failed in a row."""
        self.missed_probes = 0
        self.limit = node_limit(max_inflight, None)
        self._configured = max_inflight
        self._ceilings: tuple[int, ...] = ()
        self._failed_requests = False

    @property
    def load(self) -> float:
        """Requests in flight as a share of the limit."""
        return sum(self.inflight) / self.limit

    def is_usable(self, now: float) -> bool:
        """Whether requests may be sent to it now, slots permitting."""
        return self.state is not NodeState.DOWN and self.held_until <= now

    def set_limit(self, reported: int | None, tiers: Tiers, policy: str) -> None:
        """Recompute the ceilings. `reported` is the node's own number of slots, None if untold."""
        self.limit = node_limit(self._configured, reported)
        # A limit that somebody set is meant; only the node's own figure may be overcommitted.
        preempts = reported is not None and self._configured is None
        self._ceilings = tier_ceilings(self.limit, tiers, preempts=preempts, policy=policy)

    def free(self) -> list[int]:
        """Return how many more requests of each rank it takes now."""
        if self.state is NodeState.PROBATION:
            return [max(0, 1 - sum(self.inflight))] * len(self.inflight)
        return free_credits(self.limit, self._ceilings, self.inflight)

    def take_out(self, *, failed_requests: bool) -> None:
        """Send nothing more to it until a probe finds it well."""
        self.state = NodeState.DOWN
        self._failed_requests = failed_requests

    def bring_back(self) -> None:
        """A probe found it well."""
        self.missed_probes = 0
        if self.state is NodeState.DOWN and self._failed_requests:
            self.state = NodeState.PROBATION
        elif self.state is not NodeState.PROBATION:
            self.state = NodeState.UP


class NodePool:
    """The nodes of one gateway, all serving the same models. Only the event loop touches it.

    `on_change` is called after every event that may let a queued request leave.
    """

    def __init__(self, nodes: Sequence[Node], tiers: Tiers, policy: str = "qos") -> None:
        self.nodes = tuple(nodes)
        self.on_change: Callable[[], None] = _nothing
        self._tiers = tiers
        self._policy = policy
        self.models: frozenset[str] = frozenset()
        """The models that any node said it serves; empty while no node has told."""
        for node in self.nodes:
            node.set_limit(None, tiers, policy)

    def free(self, now: float) -> list[int]:
        """Return how many more requests of each rank may be sent now, over all nodes."""
        total = [0] * len(self._tiers)
        for node in self.nodes:
            if node.is_usable(now):
                total = [sum(pair) for pair in zip(total, node.free(), strict=True)]
        return total

    def any_usable(self) -> bool:
        """Whether any node is not known to be out."""
        return any(node.state is not NodeState.DOWN for node in self.nodes)

    def any_healthy(self) -> bool:
        """Whether any node is known to be well."""
        return any(node.state in (NodeState.UP, NodeState.PROBATION) for node in self.nodes)

    def next_release(self, now: float) -> float | None:
        """Return when the first held node may be sent to again; None when none is held."""
        times = [node.held_until for node in self.nodes if node.held_until > now]
        return min(times) if times else None

    def place(self, rank: int, now: float, avoid: Collection[str] = ()) -> Node | None:
        """Return the node for a request of `rank`, or None when no node has room for it.

        The most urgent tier goes to the least loaded node. Every other goes to the fullest that has
        room, so that lightly loaded nodes stay light for the urgent and can be taken away. Nodes
        named in `avoid` are used only when no other has room.
        """
        fitting = [n for n in self.nodes if n.is_usable(now) and n.free()[rank] > 0]
        preferred = [n for n in fitting if n.name not in avoid] or fitting
        if not preferred:
            return None
        choose = min if rank == 0 else max
        return choose(preferred, key=lambda node: node.load)

    def succeeded(self, node: Node) -> None:
        """A request got an answer from the node."""
        node.failures = node.missed_probes = 0
        if node.state is not NodeState.UP:
            node.state = NodeState.UP
            self.on_change()

    def failed(self, node: Node) -> None:
        """A request failed at the node: an error of its own, a lost connection or a time-out."""
        node.failures += 1
        if node.failures >= FAILURES_UNTIL_DOWN or node.state is NodeState.PROBATION:
            node.take_out(failed_requests=True)

    def refused(self, node: Node) -> None:
        """Nobody listens at the node's address."""
        node.take_out(failed_requests=False)

    def hold(self, node: Node, seconds: float, now: float) -> None:
        """The node says that it is full: send nothing for that long."""
        node.held_until = max(node.held_until, now + min(seconds, MAX_HOLD_S))

    def probed(self, node: Node, models: tuple[str, ...]) -> None:
        """A probe found the node well; empty `models` means it did not tell which it serves."""
        if models:
            node.models = models
            self.models = frozenset(model for n in self.nodes for model in n.models)
        node.bring_back()
        self.on_change()

    def reported(self, node: Node, max_num_seqs: int) -> None:
        """The node told how many requests it runs at once."""
        node.set_limit(max_num_seqs, self._tiers, self._policy)
        self.on_change()

    def missed(self, node: Node) -> None:
        """A probe got no answer in time. Several in a row, and no answer to requests: it is out."""
        node.missed_probes += 1
        if node.missed_probes >= FAILURES_UNTIL_DOWN:
            node.take_out(failed_requests=False)


def _nothing() -> None:
    """Nobody listens yet."""
