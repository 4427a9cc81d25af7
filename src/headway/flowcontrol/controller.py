"""When does a queued request leave, to which node, and who gives its place back?

The asyncio shell around `core.dispatch.Dispatcher`: it owns the waiting callers and one timer, and
decides nothing itself. Only the event loop touches it. Nobody polls: a decision is asked for on an
arrival, an end, a change of the nodes, and when the earliest time limit passes.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from headway.clock import Clock
from headway.core.admission import UNKNOWN_RETRY_AFTER_S, Shed, ShedReason, retry_after_s
from headway.core.backlog import QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Dispatch, WaitUntil
from headway.core.dispatch import Dispatcher, Policy
from headway.core.need import UNBOUNDED, Amount
from headway.core.outcome import Outcome
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate
from headway.errors import HeadwayError
from headway.flowcontrol.demand import DemandMeter, ReplicaMeter
from headway.flowcontrol.nodes import Node, NodePool, NodeState

NO_NODE_RETRY_AFTER_S = 0.5
"""While no node is well: a node that comes back is probed well within a second."""


class ShedError(HeadwayError):
    """The request was not served; `retry_after_s` is the predicted wait in seconds."""

    def __init__(
        self, outcome: Outcome, retry_after_s: float, reason: ShedReason | None = None
    ) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome
        self.retry_after_s = retry_after_s
        self.reason = reason
        """Why it did not join the queue, if it was the queue that refused it."""


class Lease:
    """A place at a node. Its holder calls `release` once the node is done with the request."""

    def __init__(
        self, controller: "FlowController", waiter: "_Waiter", rank: int, node: Node, queue_s: float
    ) -> None:
        self.node = node
        self.rank = rank
        """The tier in which the node has a place for it; promoted work has one above its own."""
        self.queue_s = queue_s
        """How long the request waited, in seconds."""
        self.wait = waiter.wait
        """How long that was predicted to be at its arrival; None: unknown."""
        self._controller = controller
        self.request_id = waiter.request.request_id
        self.has_started = False
        self._released = False

    def started(self) -> None:
        """The node has sent the first token. Idempotent."""
        if not (self.has_started or self._released):
            self.has_started = True
            self._controller.started(self.node, self.rank)

    def release(self, cost: float | None) -> None:
        """Give the place back and settle the request at its actual `cost`. Idempotent, no await.

        None: nobody knows what the node has done, so what was predicted stays charged.
        """
        if not self._released:
            self._released = True
            self._controller.settle(self, cost)


@dataclass(slots=True, eq=False)
class _Waiter:
    """A caller of `acquire`: what it asked for, and its answer once there is one."""

    request: QueuedRequest
    since: float
    avoid: Collection[str]
    prefix: str | None
    wait: WaitEstimate | None
    answer: Lease | ShedError | None = None
    wake: asyncio.Future[None] | None = None

    def give(self, answer: Lease | ShedError) -> None:
        self.answer = answer
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)


class FlowController:
    """The queue of one gateway."""

    def __init__(
        self,
        tiers: Tiers,
        pool: NodePool,
        clock: Clock,
        *,
        policy: Policy = "qos",
        prices: Prices | None = None,
        replica_headroom: float = 0.3,
        bounds: Amount = UNBOUNDED,
    ) -> None:
        prices = Prices() if prices is None else prices
        self.dispatcher = Dispatcher(tiers, prices, policy=policy, bounds=bounds)
        self._pool = pool
        self._clock = clock
        self._demand = DemandMeter(tiers)
        self._replicas = ReplicaMeter(self._demand, replica_headroom)
        self._waiters: dict[str, _Waiter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        pool.on_change = self.pump

    async def acquire(
        self,
        request: QueuedRequest,
        *,
        avoid: Collection[str] = (),
        prefix: str | None = None,
        again: bool = False,
    ) -> Lease:
        """Wait for a place at a node. Whoever is cancelled leaves the queue at once.

        `avoid` names nodes to use only if no other has room, `prefix` what the prompt begins with.
        `again` marks a request that a node failed to start: having been accepted once, it waits
        even while no node is well, or the queue is full.
        Raises ShedError when it may not wait, or not any longer.
        """
        now = self._clock.now()
        if self._closed and not again:
            raise ShedError(Outcome.REJECTED_SHUTTING_DOWN, UNKNOWN_RETRY_AFTER_S)
        if not again and not self._pool.any_usable():
            raise ShedError(Outcome.REJECTED_NO_ENDPOINTS, NO_NODE_RETRY_AFTER_S)
        decision = self.dispatcher.enqueue(request, now, again=again)
        if isinstance(decision, Shed):
            raise ShedError(decision.outcome, decision.retry_after_s, decision.reason)
        for request_id in decision.evicted:
            self._shed(request_id, Outcome.EVICTED_SATURATED, now)
        waiter = _Waiter(request, now, avoid, prefix, decision.wait)
        self._waiters[request.request_id] = waiter
        self._demand.joined(request)
        self.pump()
        if waiter.answer is None:
            await self._wait(waiter)
        if isinstance(waiter.answer, ShedError):
            raise waiter.answer
        assert waiter.answer is not None, "woken without an answer"
        return waiter.answer

    async def _wait(self, waiter: _Waiter) -> None:
        waiter.wake = asyncio.get_running_loop().create_future()
        try:
            await waiter.wake
        except asyncio.CancelledError:
            if isinstance(waiter.answer, Lease):
                # Dispatched and cancelled in the same turn of the loop: nothing was sent.
                waiter.answer.release(0.0)
            elif waiter.request.request_id in self._waiters:
                self._leave(waiter.request.request_id)
                self.dispatcher.remove(waiter.request.request_id, self._clock.now())
                self.pump()
            raise

    def started(self, node: Node, rank: int) -> None:
        """Called by `Lease.started`: the node has begun one request more."""
        self._pool.started(node, rank)

    def settle(self, lease: Lease, cost: float | None) -> None:
        """Called by `Lease.release`: the place at the node is free."""
        now = self._clock.now()
        self._pool.give_back(lease.node, lease.rank, started=lease.has_started)
        self._pool.tick(lease.node, now)
        self._demand.served(lease.rank, 0.0 if cost is None else cost, now)
        self.dispatcher.settle(lease.request_id, cost, now)
        self.pump()

    def pump(self) -> None:
        """Let everything leave that may leave now, and set the timer for the next time to ask."""
        now = self._clock.now()
        if self._closed and not self._pool.any_usable():
            self._shed_all(list(self._waiters), now)
        while True:
            for request_id in self.dispatcher.expired(now):
                self._expire(request_id, now)
            decision = self.dispatcher.next(now, self._pool.free(now))
            if not isinstance(decision, Dispatch):
                break
            self._dispatch(decision, now)
        self._set_timer(decision.at if isinstance(decision, WaitUntil) else None, now)

    def desired_replicas(self) -> int:
        """Return how many nodes there should be, going by what is asked of those there are."""
        live = sum(node.state is not NodeState.DOWN for node in self._pool.nodes)
        return self._replicas.desired(self.dispatcher.drain_rate, live, self._clock.now())

    def close(self, within_s: float) -> None:
        """Accept nothing more; what waits keeps leaving, except what would not within the time.

        That ends at once, and so does everything while no node is well: it can go elsewhere sooner.
        """
        self._closed = True
        self._shed_all(self.dispatcher.not_served_within(within_s), self._clock.now())
        self.pump()

    def shed_all(self) -> None:
        """End everything that still waits, as the gateway shuts down."""
        self._shed_all(list(self._waiters), self._clock.now())
        self.pump()

    def check_idle(self) -> None:
        """Raise AssertionError unless everything is back to where it was before any request."""
        assert not self._waiters, f"still waiting: {sorted(self._waiters)}"
        assert len(self.dispatcher) == 0, "requests are left in the queue"
        assert self.dispatcher.num_sent == 0, "requests were never settled"
        assert self._timer is None, "the timer still runs"
        for node in self._pool.nodes:
            assert not any(node.inflight), f"places at {node.name} were not given back"
        self.dispatcher.check_integrity()
        self._pool.check_integrity()
        self._demand.check_idle()

    def _dispatch(self, decision: Dispatch, now: float) -> None:
        waiter = self._leave(decision.request_id)
        promoted_to = decision.promoted_to
        rank = waiter.request.rank if promoted_to is None else promoted_to
        node = self._pool.place(rank, now, waiter.avoid, waiter.prefix)
        assert node is not None, "dispatched without a credit"
        self._pool.take(node, rank, waiter.prefix)
        waiter.give(Lease(self, waiter, rank, node, now - waiter.since))

    def _expire(self, request_id: str, now: float) -> None:
        outcome = Outcome.EVICTED_TTL_EXPIRED
        if not self._pool.any_usable():
            outcome = Outcome.EVICTED_NO_ENDPOINTS
        self._shed(request_id, outcome, now)

    def _shed_all(self, request_ids: Collection[str], now: float) -> None:
        for request_id in request_ids:
            self.dispatcher.remove(request_id, now)
            shed = ShedError(Outcome.EVICTED_SHUTTING_DOWN, UNKNOWN_RETRY_AFTER_S)
            self._leave(request_id).give(shed)

    def _shed(self, request_id: str, outcome: Outcome, now: float) -> None:
        """End a waiting request that has left the queue, with the wait it would have now."""
        waiter = self._leave(request_id)
        again_s = NO_NODE_RETRY_AFTER_S
        if outcome is not Outcome.EVICTED_NO_ENDPOINTS:
            again_s = retry_after_s(self.dispatcher.predicted_wait(waiter.request, now))
        waiter.give(ShedError(outcome, again_s))

    def _leave(self, request_id: str) -> _Waiter:
        waiter = self._waiters.pop(request_id)
        self._demand.left(waiter.request)
        return waiter

    def _set_timer(self, at: float | None, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self.dispatcher) == 0:
            return
        held = self._pool.next_release(now)
        times = [time for time in (at, held) if time is not None]
        if times:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, min(times) - now), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.pump()
