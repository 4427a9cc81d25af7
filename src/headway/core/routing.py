"""Which node gets the request?

The most urgent tier goes to the least loaded node. Every other goes to the fullest that has room
and begins what it gets, so that lightly loaded nodes stay light for the urgent and can be taken
away; while all are behind, it goes to the least loaded, too. A node that lately had a request with
the same prefix is preferred while its load is near that of the node chosen so.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Sequence

AFFINITY_QUANTUM = 0.25
"""How much further from the best load a node may be that has the prefix: a share of its limit."""
BEHIND = 1.0
"""How much further from the best a node that is behind is than any that is not."""
MAX_PREFIXES = 65_536
"""The least recently used ones beyond are forgotten."""

Place = tuple[float, int]
"""How far a node is from what a rank prefers, and its number."""


class Router:
    """The credits of all nodes, in order of load. Nodes are numbered by the caller.

    `free`, by rank, is what all nodes together take now; callers only read it. A decision and a
    change each compare O(log nodes) loads per tier.
    """

    def __init__(self, num_tiers: int) -> None:
        self.free: list[int] = [0] * num_tiers
        self._ranks = range(num_tiers)
        self._lines: list[list[Place]] = [[] for _ in self._ranks]
        """By rank, the nodes that have room."""
        self._nothing = ((0,) * num_tiers, ((0.0, 0), (0.0, 0)))
        # By node, what it takes and its two places: for the most urgent rank and for every other.
        self._nodes: dict[int, tuple[tuple[int, ...], tuple[Place, Place]]] = {}
        self._homes: OrderedDict[str, int] = OrderedDict()

    def update(
        self,
        node: int,
        free: Sequence[int],
        load: float,
        *,
        urgent: float | None = None,
        behind: bool = False,
    ) -> None:
        """Set what `node` takes now, by rank, and its load: in flight as a share of its limit.

        `urgent`: as much of it as the most urgent tier would notice there; None: all. `behind`:
        what else it got would have to wait there for its first step.
        """
        free_before, before = self._nodes.get(node, self._nothing)
        key = load if urgent is None else urgent
        places = (key, node), (BEHIND + load if behind else -load, node)
        for rank in self._ranks:
            had, has = free_before[rank], free[rank]
            if had == has == 0:
                continue
            self.free[rank] += has - had
            line = self._lines[rank]
            if had > 0:
                del line[bisect_left(line, before[rank > 0])]
            if has > 0:
                insort(line, places[rank > 0])
        self._nodes[node] = (tuple(free), places)

    def choose(
        self, rank: int, avoid: Collection[int] = (), prefix: str | None = None
    ) -> int | None:
        """Return the node for a request of `rank`, None when no node has room for it.

        Of equals it is the first. Nodes in `avoid` are taken only when no other has room.
        """
        line = self._lines[rank]
        if not line:
            return None
        best = line[0]
        if avoid:
            best = next((entry for entry in line if entry[1] not in avoid), best)
        home = None if prefix is None else self._homes.get(prefix)
        if home is not None and home not in avoid:
            free, places = self._nodes[home]
            if free[rank] > 0 and places[rank > 0][0] - best[0] <= AFFINITY_QUANTUM:
                return home
        return best[1]

    def served(self, node: int, prefix: str) -> None:
        """Remember that `node` got a request with that prefix."""
        self._homes[prefix] = node
        self._homes.move_to_end(prefix)
        if len(self._homes) > MAX_PREFIXES:
            self._homes.popitem(last=False)

    @property
    def num_prefixes(self) -> int:
        """How many prefixes are remembered."""
        return len(self._homes)

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        for rank in self._ranks:
            nodes = self._nodes.items()
            expected = [places[rank > 0] for _, (free, places) in nodes if free[rank]]
            assert self._lines[rank] == sorted(expected), f"rank {rank} is out of order"
            assert all(place[1] == n for n, (_, both) in nodes for place in both), "a wrong place"
            total = sum(free[rank] for free, _ in self._nodes.values())
            assert self.free[rank] == total, f"credits of rank {rank} have drifted"
