"""Which nodes may be sent to, and how many requests does each take now?

A node that was never heard of is neither full nor free: it is used at a careful limit. One missed
answer proves nothing; a refused connection does, and so do several failures in a row. A node that
is out comes back when a probe finds it well, and after failed requests it has to serve one request
before it gets more.

Free of clocks and of asyncio: the gateway and the simulator drive the same pool.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum

from headway.core.limits import NodeLimiter
from headway.core.routing import Router
from headway.core.tier import Tiers
from headway.core.window import WindowSignals
from headway.flowcontrol.credits import floor_slots, free_credits, known_slots, tier_ceilings
from headway.flowcontrol.meter import NodeMeter

FAILURES_UNTIL_DOWN = 3
MAX_FAILURES = 2
"""How often nodes may fail at one request, which may be the cause itself."""
MOST_STARTING = 4
"""Requests without a first token from which on a node is behind: about what one step begins."""
SLOTS_PER_STREAM = 32
"""Of a node's slots, for so many each a critical request counts as one stream more, and at least as
one, while it has no first token: a prompt costs whoever comes after it whole steps, a stream a
token of each. A node that has become slow shows it here first."""
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
        self.held_until = 0.0
        self.failures = 0
        """Requests that failed in a row; one that is sent again counts once."""
        self.causes: set[int] = set()
        """Those of them that may be the cause themselves."""
        self.missed_probes = 0
        self.limiter = NodeLimiter(max_inflight)
        self.meter = NodeMeter([tier.target.tpot_s for tier in tiers.all])
        self._configured = max_inflight
        self._preempts = False
        self._inflight = [0] * len(tiers)
        self._starting = [0] * len(tiers)
        self._ceilings: tuple[int, ...] = ()
        self._floor_slots: tuple[int, ...] = ()
        self._failed_requests = False
        self._unreachable = False

    @property
    def inflight(self) -> Sequence[int]:
        """Requests in flight, by rank."""
        return self._inflight

    @property
    def starting(self) -> Sequence[int]:
        """Of those in flight, how many have not got their first token, by rank."""
        return self._starting

    @property
    def limit(self) -> int:
        """How many requests it takes."""
        return self.limiter.limit

    def loads(self) -> tuple[float, float]:
        """Return the requests in flight as a share of the limit: all, and what urgent ones notice.

        At a node that plans by tier the most urgent tier notices only its own requests, prompts
        more than streams, and of equal nodes the less loaded.
        """
        limit = self.limiter.limit
        load = sum(self._inflight) / limit
        if not self._preempts:
            return load, load
        prompts = max(1.0, limit / SLOTS_PER_STREAM) * self._starting[0]
        return load, (self._inflight[0] + prompts + load) / limit

    def began(self, rank: int) -> None:
        """One request more is in flight."""
        self._inflight[rank] += 1
        self._starting[rank] += 1
        self.meter.began(sum(self._inflight))

    @property
    def behind(self) -> bool:
        """Whether it has more than it has begun; of no stream, nobody knows before its end."""
        return sum(self._starting) >= MOST_STARTING

    def started(self, rank: int) -> None:
        """One of its requests has got its first token."""
        self._starting[rank] -= 1

    def ended(self, rank: int, *, started: bool) -> None:
        """One request less is in flight."""
        self._inflight[rank] -= 1
        self._starting[rank] -= not started
        self.meter.completions += 1

    def reported(self, max_num_seqs: int) -> None:
        """It told, in headway's words, how many it runs at once: it plans by tier itself."""
        slots = known_slots(self._configured, max_num_seqs)
        assert slots is not None, "a reported number is a number"
        self.limiter.set_slots(slots, keeps_latency=True)
        # A limit that somebody set is meant; only the node's own figure may be overcommitted.
        self._preempts = self._configured is None

    def set_ceilings(self, tiers: Tiers, policy: str) -> None:
        """Share the limit out among the tiers anew."""
        self._ceilings = tier_ceilings(self.limit, tiers, preempts=self._preempts, policy=policy)
        self._floor_slots = floor_slots(self.limit, tiers, preempts=self._preempts, policy=policy)

    def free(self) -> list[int]:
        """Return how many more requests of each rank it takes now."""
        if self.state is NodeState.DOWN:
            return [0] * len(self._inflight)
        if self.state is NodeState.PROBATION:
            return [max(0, 1 - sum(self._inflight))] * len(self._inflight)
        return free_credits(self.limit, self._ceilings, self._inflight, kept=self._floor_slots)

    def take_out(self, *, failed_requests: bool) -> None:
        """Send nothing more to it until a probe finds it well."""
        self.state = NodeState.DOWN
        self.causes.clear()
        self._failed_requests = failed_requests
        self._unreachable |= not failed_requests

    def bring_back(self) -> None:
        """A probe found it well."""
        self.missed_probes = 0
        self._unreachable = False
        if self.state is NodeState.DOWN and self._failed_requests:
            self.state = NodeState.PROBATION
        elif self.state is not NodeState.PROBATION:
            self.state = NodeState.UP

    def answered(self) -> bool:
        """A request got an answer; return whether that takes it up, for it was not well before.

        Where nobody listens or probes fail, it says only that what had begun came to its end.
        """
        self.failures = self.missed_probes = 0
        self.causes.clear()
        if self.state is NodeState.UP or self._unreachable:
            return False
        self.state = NodeState.UP
        return True


class NodePool:
    """The nodes of one gateway, all serving the same models. Only one thread touches it.

    `on_change` is called after every event that may let a queued request leave, and when the last
    node goes. `adaptive`: limits follow what nodes show; otherwise they stay as configured,
    reported or guessed.
    """

    def __init__(
        self, nodes: Sequence[Node], tiers: Tiers, policy: str = "qos", *, adaptive: bool = True
    ) -> None:
        self.nodes = tuple(nodes)
        self.on_change: Callable[[], None] = _nothing
        self._tiers = tiers
        self._policy = policy
        self._adaptive = adaptive
        self.models: frozenset[str] = frozenset()
        """The models that any node said it serves; empty while no node has told."""
        self._router = Router(len(tiers))
        self._numbers = {node.name: number for number, node in enumerate(self.nodes)}
        self._held: set[Node] = set()
        for node in self.nodes:
            self._limit_moved(node)

    def free(self, now: float) -> Sequence[int]:
        """Return how many more requests of each rank may be sent now, over all nodes."""
        if self._held:
            self._release(now)
        return self._router.free

    def any_usable(self) -> bool:
        """Whether any node is not known to be out."""
        return any(node.state is not NodeState.DOWN for node in self.nodes)

    def any_healthy(self) -> bool:
        """Whether any node is known to be well."""
        return any(node.state in (NodeState.UP, NodeState.PROBATION) for node in self.nodes)

    def next_release(self, now: float) -> float | None:
        """Return when the first held node may be sent to again; None when none is held."""
        return min((node.held_until for node in self._held if node.held_until > now), default=None)

    def place(
        self, rank: int, now: float, avoid: Collection[str] = (), prefix: str | None = None
    ) -> Node | None:
        """Return the node for a request of `rank`, or None when no node has room for it.

        Nodes named in `avoid` are used only when no other has room. `prefix` names what the prompt
        begins with, in the name of its tenant.
        """
        if self._held:
            self._release(now)
        numbers = [self._numbers[name] for name in avoid if name in self._numbers]
        number = self._router.choose(rank, numbers, prefix)
        return None if number is None else self.nodes[number]

    def take(self, node: Node, rank: int, prefix: str | None = None) -> None:
        """A request of `rank` is sent to the node."""
        node.began(rank)
        if prefix is not None:
            self._router.served(self._numbers[node.name], prefix)
        self._refresh(node)

    def started(self, node: Node, rank: int) -> None:
        """A request of `rank` has got its first token from the node."""
        was_behind = node.behind
        node.started(rank)
        if rank == 0 or was_behind != node.behind:
            self._refresh(node)

    def give_back(self, node: Node, rank: int, *, started: bool = False) -> None:
        """A request of `rank` is no longer at the node, however it ended.

        `started`: it had got its first token.
        """
        node.ended(rank, started=started)
        self._refresh(node)

    def tick(self, node: Node, now: float) -> None:
        """Let the node's limit follow what was seen of it, if that is enough by now."""
        signals = node.meter.close(now, sum(node.inflight))
        if signals is not None:
            self.observe(node, signals, now)

    def observe(self, node: Node, signals: WindowSignals, now: float) -> None:
        """Let the node's limit follow what it did in a window that ended at `now`."""
        before = node.limit
        if self._adaptive and node.limiter.observe(signals) != before:
            self._limit_moved(node)
            if node.limit > before:
                self.on_change()

    def succeeded(self, node: Node) -> None:
        """A request got an answer from the node."""
        if node.answered():
            self._refresh(node)
            self.on_change()

    def failed(self, node: Node, cause: int | None = None) -> None:
        """A request failed at the node: an error of its own, a lost connection or a time-out.

        `cause` identifies a request that may be at fault itself: failing again proves nothing more
        about the node.
        """
        if cause in node.causes:
            return
        if cause is not None:
            node.causes.add(cause)
        node.failures += 1
        node.meter.failed = True
        if node.failures >= FAILURES_UNTIL_DOWN or node.state is NodeState.PROBATION:
            self._take_out(node, failed_requests=True)

    def refused(self, node: Node) -> None:
        """Nobody listens at the node's address."""
        self._take_out(node, failed_requests=False)

    def hold(self, node: Node, seconds: float, now: float) -> None:
        """The node says that it is full: send nothing for that long."""
        node.held_until = max(node.held_until, now + min(seconds, MAX_HOLD_S))
        node.meter.failed = True
        if node.held_until > now:
            self._held.add(node)
            self._refresh(node)

    def probed(self, node: Node, models: tuple[str, ...]) -> None:
        """A probe found the node well; empty `models` means it did not tell which it serves."""
        if models:
            node.models = models
            self.models = frozenset(model for n in self.nodes for model in n.models)
        node.bring_back()
        self._refresh(node)
        self.on_change()

    def reported(self, node: Node, max_num_seqs: int) -> None:
        """The node told how many requests it runs at once."""
        node.reported(max_num_seqs)
        self._limit_moved(node)
        self.on_change()

    def missed(self, node: Node) -> None:
        """A probe got no answer in time. Several in a row, and no answer to requests: it is out."""
        node.missed_probes += 1
        if node.missed_probes >= FAILURES_UNTIL_DOWN:
            self._take_out(node, failed_requests=False)

    def check_integrity(self) -> None:
        """Raise AssertionError when a node's credits are not what it has. Linear; for tests."""
        for rank, free in enumerate(self._router.free):
            expected = sum(node.free()[rank] for node in self.nodes if node not in self._held)
            assert free == expected, f"credits of rank {rank} have drifted"
        for node in self.nodes:
            both = zip(node.starting, node.inflight, strict=True)
            assert all(0 <= some <= most for some, most in both), "of those that start one is lost"
        self._router.check_integrity()

    def _take_out(self, node: Node, *, failed_requests: bool) -> None:
        node.take_out(failed_requests=failed_requests)
        self._refresh(node)
        if not self.any_usable():
            # Who waits for a place now may have to be told that there is none.
            self.on_change()

    def _release(self, now: float) -> None:
        for node in [node for node in self._held if node.held_until <= now]:
            self._held.discard(node)
            self._refresh(node)

    def _limit_moved(self, node: Node) -> None:
        node.set_ceilings(self._tiers, self._policy)
        self._refresh(node)

    def _refresh(self, node: Node) -> None:
        free = [0] * len(self._tiers) if node in self._held else node.free()
        load, urgent = node.loads()
        number = self._numbers[node.name]
        self._router.update(number, free, load, urgent=urgent, behind=node.behind)


def _nothing() -> None:
    """Nobody listens yet."""
