"""Credits follow everything that happens to nodes, and a lost node gives its own back (G6, G9)."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.core.tier import Tiers
from headway.core.window import WindowSignals
from headway.flowcontrol.nodes import Node, NodePool, NodeState

TIERS = Tiers()
NODES = st.integers(0, 3)


class Nodes(RuleBasedStateMachine):
    """Four nodes, of which everything may happen to each at any time."""

    def __init__(self) -> None:
        super().__init__()
        limits = (None, 1, 5, None)
        nodes = [Node(f"n{i}", f"http://n{i}", TIERS, limit) for i, limit in enumerate(limits)]
        self.pool = NodePool(nodes, TIERS)
        self.now = 0.0
        self.sent: list[tuple[Node, int, bool]] = []

    @rule(rank=st.integers(0, 2), avoid=st.sets(st.sampled_from(["n0", "n1", "n2", "n3"])))
    def send(self, rank: int, avoid: set[str]) -> None:
        free = self.pool.free(self.now)[rank]
        node = self.pool.place(rank, self.now, avoid, f"prefix{rank}")
        assert (node is not None) == (free > 0)
        if node is not None:
            assert node.state is not NodeState.DOWN
            assert node.held_until <= self.now
            self.pool.take(node, rank, f"prefix{rank}")
            self.sent.append((node, rank, False))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        node, rank, started = self.sent.pop(data.draw(st.integers(0, len(self.sent) - 1)))
        self.pool.give_back(node, rank, started=started)
        self.pool.tick(node, self.now)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.sent) - 1))
        node, rank, started = self.sent[at]
        if not started:
            self.pool.started(node, rank)
            self.sent[at] = (node, rank, True)

    @rule(number=NODES, good=st.booleans())
    def answer(self, number: int, good: bool) -> None:
        node = self.pool.nodes[number]
        (self.pool.succeeded if good else self.pool.failed)(node)

    @rule(number=NODES, found=st.sampled_from(["well", "silent", "gone"]))
    def probe(self, number: int, found: str) -> None:
        node = self.pool.nodes[number]
        if found == "well":
            self.pool.probed(node, ("m",))
        elif found == "silent":
            self.pool.missed(node)
        else:
            self.pool.refused(node)
            assert node.free() == [0, 0, 0]

    @rule(number=NODES, slots=st.integers(0, 40))
    def report(self, number: int, slots: int) -> None:
        node = self.pool.nodes[number]
        self.pool.reported(node, slots)
        assert node.limit <= max(1, slots)

    @rule(number=NODES, seconds=st.floats(0, 40))
    def say_full(self, number: int, seconds: float) -> None:
        self.pool.hold(self.pool.nodes[number], seconds, self.now)

    @rule(number=NODES, wait_s=st.none() | st.floats(0, 1), failed=st.booleans())
    def observe(self, number: int, wait_s: float | None, failed: bool) -> None:
        node = self.pool.nodes[number]
        inflight = sum(node.inflight)
        signals = WindowSignals(
            duration_s=1.0,
            completions=20,
            max_inflight=inflight,
            queue_wait_p95_s=wait_s,
            failed=failed,
        )
        self.pool.observe(node, signals, self.now)

    @rule(seconds=st.floats(0, 20))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def credits_are_what_the_nodes_have(self) -> None:
        usable = [node for node in self.pool.nodes if node.held_until <= self.now]
        expected = [sum(node.free()[rank] for node in usable) for rank in range(3)]
        assert list(self.pool.free(self.now)) == expected
        self.pool.check_integrity()
        for node in self.pool.nodes:
            held = [sum(n is node and r == rank for n, r, _ in self.sent) for rank in range(3)]
            assert list(node.inflight) == held
            new = [(n, r) for n, r, started in self.sent if not started]
            assert list(node.starting) == [new.count((node, rank)) for rank in range(3)]

    def teardown(self) -> None:
        for node, rank, started in self.sent:
            self.pool.give_back(node, rank, started=started)
        for node in self.pool.nodes:
            self.pool.refused(node)
            self.pool.probed(node, ())
            self.pool.succeeded(node)
        self.now += 60
        assert all(sum(node.inflight) == 0 for node in self.pool.nodes)
        assert all(min(node.free()) >= 1 for node in self.pool.nodes)
        assert self.pool.free(self.now)[0] >= sum(node.limit for node in self.pool.nodes)


TestNodes = Nodes.TestCase
