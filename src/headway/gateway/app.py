"""What is the gateway made of? Wiring only; nothing is decided here."""

import asyncio
from dataclasses import dataclass

from headway.clock import Clock, MonotonicClock
from headway.config import Config, GatewayConfig
from headway.core.cost import Prices
from headway.core.need import UNBOUNDED, Amount
from headway.flowcontrol.controller import FlowController
from headway.flowcontrol.nodes import Node, NodePool, NodeState
from headway.gateway.exchange import Exchanges
from headway.gateway.explain import ExplainRing
from headway.gateway.forward import Forwarder
from headway.gateway.generate import Generator
from headway.gateway.identity import Identity
from headway.gateway.job import JobMaker
from headway.gateway.node_client import NodeClient
from headway.gateway.probe import Prober
from headway.gateway.routes import Pages, build_routes
from headway.metrics.gateway import GatewayMetrics, NodeReading, Reading
from headway.wire.offload import INLINE_BODY_BYTES, Offload
from headway.wire.routing import Router

CUT_GRACE_S = 5.0
"""How long requests that are cut off may take to say so to their clients."""


@dataclass(kw_only=True)
class Gateway:
    """A gateway and its parts. `app` is what a server serves; it starts and stops the rest."""

    config: Config
    controller: FlowController
    pool: NodePool
    client: NodeClient
    prober: Prober
    exchanges: Exchanges
    ring: ExplainRing
    metrics: GatewayMetrics
    bodies: Offload
    draining: bool = False

    def __post_init__(self) -> None:
        """`build_gateway` adds the app, which needs all of the rest."""
        self.app: Router

    async def start(self) -> None:
        """Connect to the nodes."""
        await self.client.start()
        self.prober.start()

    async def stop(self) -> None:
        """Disconnect from the nodes."""
        await self.prober.stop()
        await self.client.close()
        self.bodies.close()

    async def drain(self) -> None:
        """Refuse new requests, let the others end, then cut off what is left.

        What waits keeps leaving in the order of the tiers; what would still wait after `drain_s` is
        refused at once, and whatever has not ended by then is refused, or told in its stream.
        """
        self.draining = True
        self.controller.close(self.config.gateway.drain_s)
        try:
            async with asyncio.timeout(self.config.gateway.drain_s):
                await self.exchanges.wait_idle()
        except TimeoutError:
            self.controller.shed_all()
            self.exchanges.cut_all()
            await asyncio.wait(
                [asyncio.create_task(self.exchanges.wait_idle())], timeout=CUT_GRACE_S
            )

    def check_idle(self) -> None:
        """Raise AssertionError unless everything is back to where it was before any request."""
        assert len(self.exchanges) == 0, f"{len(self.exchanges)} requests have not ended"
        self.controller.check_idle()

    def read(self) -> Reading:
        """Return the live state, for the metrics."""
        ranks = range(len(self.config.tiers))
        dispatcher = self.controller.dispatcher
        return Reading(
            queue_depth=[dispatcher.queue_depth(rank) for rank in ranks],
            queue_tokens=[dispatcher.queued_tokens(rank) for rank in ranks],
            wait_estimates=dispatcher.wait_counts.judged,
            waits_within_p90=dispatcher.wait_counts.within_p90,
            nodes=[_reading(node) for node in self.pool.nodes],
            desired_replicas=self.controller.desired_replicas(),
        )


def build_gateway(config: Config, *, clock: Clock | None = None) -> Gateway:
    """Return a gateway for `config`, ready to be served. Raises ConfigError."""
    clock = MonotonicClock() if clock is None else clock
    settings, tiers, prices = config.gateway, config.tiers, Prices()
    nodes = [Node(node.name, node.url, tiers, node.max_inflight) for node in config.nodes]
    pool = NodePool(nodes, tiers, settings.policy, adaptive=settings.adaptive_limits)
    client = NodeClient(connect_timeout_s=settings.connect_timeout_s)
    controller = FlowController(
        tiers,
        pool,
        clock,
        policy=settings.policy,
        prices=prices,
        replica_headroom=settings.replica_headroom,
        bounds=_total_bounds(settings),
    )
    metrics = GatewayMetrics(
        [tier.name for tier in tiers.all],
        top_tenants=settings.top_tenants,
        models=lambda: pool.models,
        read=lambda: gateway.read(),
    )
    jobs, ring = JobMaker(prices), ExplainRing()
    gateway = Gateway(
        config=config,
        controller=controller,
        pool=pool,
        client=client,
        prober=Prober(pool, client, clock),
        exchanges=Exchanges(clock, metrics, ring, jobs.cost),
        ring=ring,
        metrics=metrics,
        bodies=Offload("headway-bodies", inline_up_to=INLINE_BODY_BYTES),
    )
    identity = Identity(tiers, config.keys, strict=settings.strict_tiers)
    forward = Forwarder(controller, pool, client, metrics, clock)
    generator = Generator(
        settings, identity, jobs, gateway.bodies, forward, gateway.exchanges, metrics, clock
    )
    pages = Pages(identity, pool, gateway.prober, ring, metrics, lambda: gateway.draining)
    routes = build_routes(generator, pages)
    gateway.app = Router(routes, on_start=gateway.start, on_stop=gateway.stop)
    return gateway


def build_app(config: Config, *, clock: Clock | None = None) -> Router:
    """Return the ASGI app of a gateway. Raises ConfigError."""
    return build_gateway(config, clock=clock).app


def _total_bounds(settings: GatewayConfig) -> Amount:
    requests, tokens = settings.max_queued_total, settings.max_queued_tokens_total
    return Amount(
        UNBOUNDED.requests if requests is None else requests,
        UNBOUNDED.tokens if tokens is None else tokens,
    )


def _reading(node: Node) -> NodeReading:
    up = node.state in (NodeState.UP, NodeState.PROBATION)
    return NodeReading(name=node.name, up=up, limit=node.limit, inflight=tuple(node.inflight))
