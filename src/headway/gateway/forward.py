"""Which node answers, and when is another one asked?"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from headway.clock import Clock
from headway.errors import NodeError
from headway.flowcontrol.controller import FlowController, Lease, ShedError
from headway.flowcontrol.nodes import Node, NodePool
from headway.gateway.exchange import Exchange
from headway.gateway.job import Job
from headway.gateway.node_client import NodeClient
from headway.gateway.retry import Retries, blame
from headway.metrics.gateway import GatewayMetrics

T = TypeVar("T")


class Forwarder:
    """Takes a request through the queue to a node that starts to answer it."""

    def __init__(
        self,
        controller: FlowController,
        pool: NodePool,
        client: NodeClient,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self.client = client
        self._controller = controller
        self._pool = pool
        self._metrics = metrics
        self._clock = clock

    def serves(self, model: str) -> bool:
        """Whether a node serves the model, or none has told yet which it serves."""
        return not self._pool.models or model in self._pool.models

    async def send(
        self, exchange: Exchange, job: Job, ask: Callable[[Lease], Awaitable[T]]
    ) -> tuple[Node, T]:
        """Return the first node that starts to answer, and what `ask` got from it.

        The place at that node belongs to the exchange. Raises ShedError and each kind of NodeError.
        """
        retries = Retries(self._pool, job.order.body)
        while True:
            lease = await self._acquire(exchange, job, retries)
            node = lease.node
            try:
                answer = await ask(lease)
            except NodeError as error:
                retries.failed(node, error, self._clock.now())
                self._metrics.retried(node.name)
                exchange.give_back(0.0)
            else:
                self._pool.succeeded(node)
                return node, answer

    def blame(self, node: Node, error: NodeError, job: Job) -> None:
        """Note that the node failed in the middle of the answer to `job`."""
        blame(self._pool, node, error, job.order.body, self._clock.now())

    async def _acquire(self, exchange: Exchange, job: Job, retries: Retries) -> Lease:
        """Wait in the queue; the place that is got belongs to the exchange."""
        since = self._clock.now()
        request = job.queued
        if retries.again:
            # Keeps its place in the line: only time in the queue counts as having waited.
            request = replace(request, arrival=since - exchange.queue_s)
        rank = request.rank
        try:
            lease = await self._controller.acquire(
                request, avoid=retries.avoid, prefix=job.order.prefix, again=retries.again
            )
        except ShedError as error:
            if error.outcome.startswith("evicted"):
                self._metrics.queued(rank, self._clock.now() - since, "evicted")
            raise
        except asyncio.CancelledError:
            self._metrics.queued(rank, self._clock.now() - since, "cancelled")
            raise
        exchange.took(lease)
        self._metrics.queued(rank, lease.queue_s, "dispatched")
        return lease
