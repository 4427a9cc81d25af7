"""Is a node well, which models does it serve, and what does it say of its load?

Health decides whether work is sent; /metrics only tells how much. So a node whose metrics hang or
lack a series still serves, at the limit last known or at the careful one.
"""

import asyncio
import logging

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headway.clock import Clock
from headway.errors import NodeError
from headway.flowcontrol.nodes import Node, NodePool, NodeState
from headway.gateway.node_client import NodeClient, NodeRefusedError
from headway.gateway.node_metrics import NodePage, read_page, report_between
from headway.wire.models import ModelCard, ModelList

PROBE_TIMEOUT_S = 2.0
UP_INTERVAL_S = 2.0
FIRST_INTERVAL_S = 0.25
"""How soon a node that is not up is probed again; doubles with each probe."""
MAX_INTERVAL_S = 5.0

_log = logging.getLogger(__name__)


class _Card(Struct):
    id: str
    created: int = 0
    owned_by: str = ""
    max_model_len: int | None = None


class _Cards(Struct):
    data: list[_Card]


_DECODER = msgspec.json.Decoder(_Cards)


class Prober:
    """Probes every node of a pool, each in a task of its own, between `start` and `stop`."""

    def __init__(self, pool: NodePool, client: NodeClient, clock: Clock) -> None:
        self._pool = pool
        self._client = client
        self._clock = clock
        self._pages: dict[str, NodePage] = {}
        self._cards: dict[str, list[_Card]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to probe."""
        self._tasks = [asyncio.create_task(self._watch(node)) for node in self._pool.nodes]

    async def stop(self) -> None:
        """Stop probing."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def models(self) -> ModelList:
        """Return the models of all nodes, each once; the first node that has one describes it."""
        cards: dict[str, ModelCard] = {}
        for node in self._pool.nodes:
            for card in self._cards.get(node.name, ()):
                cards.setdefault(card.id, _model_card(card))
        return ModelList(list(cards.values()))

    async def probe(self, node: Node) -> None:
        """Ask one node, and tell the pool."""
        before = node.state
        try:
            status, _ = await self._client.get(node, "/health", timeout_s=PROBE_TIMEOUT_S)
        except NodeRefusedError:
            self._pool.refused(node)
        except NodeError:
            self._pool.missed(node)
        else:
            # A node without such a page answers 404 and is well; 5xx says that it is not.
            if status < 500:
                self._pool.probed(node, await self._ask_models(node))
                await self._ask_load(node)
            else:
                self._pool.refused(node)
        self._pool.tick(node, self._clock.now())
        if node.state is not before:
            level = logging.WARNING if node.state is NodeState.DOWN else logging.INFO
            _log.log(level, "node %s is %s, was %s", node.name, node.state, before)

    async def _watch(self, node: Node) -> None:
        interval_s = FIRST_INTERVAL_S
        while True:
            await self.probe(node)
            if node.state is NodeState.UP:
                interval_s = FIRST_INTERVAL_S
                await asyncio.sleep(UP_INTERVAL_S)
            else:
                await asyncio.sleep(interval_s)
                interval_s = min(2 * interval_s, MAX_INTERVAL_S)

    async def _ask_models(self, node: Node) -> tuple[str, ...]:
        try:
            status, body = await self._client.get(node, "/v1/models", timeout_s=PROBE_TIMEOUT_S)
            cards = _DECODER.decode(body).data if status == 200 else []
        except (NodeError, msgspec.DecodeError, UnicodeError, RecursionError):
            return ()
        if cards:
            self._cards[node.name] = cards
        return tuple(card.id for card in cards)

    async def _ask_load(self, node: Node) -> None:
        try:
            status, body = await self._client.get(node, "/metrics", timeout_s=PROBE_TIMEOUT_S)
        except NodeError:
            return
        if status != 200:
            return
        page = read_page(body)
        if page.max_num_seqs is not None:
            self._pool.reported(node, page.max_num_seqs)
        report = report_between(self._pages.get(node.name), page)
        self._pages[node.name] = page
        node.meter.reported(report, self._clock.now())


def _model_card(card: _Card) -> ModelCard:
    length: int | UnsetType = UNSET if card.max_model_len is None else card.max_model_len
    return ModelCard(card.id, card.created, card.owned_by, max_model_len=length)
