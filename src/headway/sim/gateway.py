"""When does a simulated request leave the queue, and to which node?

`QoSGateway` is the controller of `flowcontrol` without its callers: the same dispatcher, nodes and
credits, asked at the same moments. What stands before engines that queue themselves is in
`balancer.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from headway.core.admission import Shed, retry_after_s
from headway.core.backlog import QueuedRequest
from headway.core.cost import OutputEstimator, Prices, request_cost
from headway.core.decision import Dispatch, WaitUntil
from headway.core.dispatch import Dispatcher
from headway.core.outcome import Outcome
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate
from headway.flowcontrol.controller import NO_NODE_RETRY_AFTER_S
from headway.flowcontrol.meter import NodeReport
from headway.flowcontrol.nodes import Node, NodePool
from headway.sim.call import Call
from headway.sim.node import SimNode
from headway.sim.scenario import NodesConfig, Scenario

PROBE_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class Door:
    """What a gateway calls when it has decided."""

    send: Callable[[Call, int, float], None]
    """Send the call to the node of this index."""
    end: Callable[[Call, Outcome, float], None]
    """The call ends without an answer."""
    wake: Callable[[float], None]
    """Call `pump` then."""


class Gateway(Protocol):
    """What takes calls in and sends them on."""

    def submit(self, call: Call, now: float) -> None:
        """Take a call in; it may leave or end at once."""

    def submit_again(self, call: Call, now: float) -> None:
        """Take back a call that its node has lost, at its old place."""

    def settle(self, call: Call, num_cached: int, now: float, *, completed: bool) -> None:
        """A call has ended at its node. `pump` follows."""

    def tokens(self, calls: Sequence[Call], now: float) -> None:
        """Each of these calls' clients gets a token; the one before was at `last_at`."""

    def observe(self, nodes: Sequence[SimNode], now: float) -> None:
        """Look at what the nodes say of themselves; called each second."""

    def limit(self) -> int | None:
        """Return how many requests all nodes together take now; None: nobody limits them."""

    def cancel(self, call: Call, now: float) -> None:
        """The client of a call that waits here has left."""

    def pump(self, now: float) -> None:
        """Let everything leave that may."""

    def node_down(self, index: int, now: float) -> None:
        """Nobody listens at the node any more."""

    def node_up(self, index: int, now: float) -> None:
        """The node is found well."""

    def shed_all(self, now: float) -> None:
        """End what waits."""

    def waiting(self) -> Sequence[int]:
        """Return how many wait, by rank."""

    def woken(self) -> None:
        """The time that `Door.wake` was told has come; `pump` follows."""

    def check_idle(self) -> None:
        """Raise AssertionError unless everything is as before any request (I0)."""


class QoSGateway:
    """headway's gateway under virtual time."""

    def __init__(
        self,
        scenario: Scenario,
        tiers: Tiers,
        door: Door,
        rng: Random,
        *,
        reporting: bool,
    ) -> None:
        """Start with all nodes well. `reporting`: they tell how many requests they run at once."""
        self._tiers = tiers
        self._prices = Prices()
        self._door = door
        self._options = scenario.gateway
        self._reporting = reporting
        self._rng = rng
        self._dispatcher = Dispatcher(tiers, self._prices)
        self._outputs = OutputEstimator()
        nodes = [_node(number, scenario.nodes, tiers) for number in range(scenario.nodes.count)]
        self._pool = NodePool(nodes, tiers, adaptive=scenario.gateway.adaptive_limits)
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._preemptions = [0] * len(nodes)
        self._probed_at = 0.0
        for node in nodes:
            self._pool.probed(node, ())
            if reporting:
                self._pool.reported(node, scenario.nodes.max_num_seqs)
        self._calls: dict[str, Call] = {}
        self._timer_at: float | None = None

    def submit(self, call: Call, now: float) -> None:
        """See `Gateway`."""
        if not self._pool.any_usable():
            self._end(call, Outcome.REJECTED_NO_ENDPOINTS, None, now)
            return
        self._queue(call, now, call.arrival)

    def submit_again(self, call: Call, now: float) -> None:
        """See `Gateway`."""
        self._pool.give_back(self._pool.nodes[call.node], call.served_rank, started=call.started)
        call.node = -1
        self._dispatcher.settle(call.request_id, 0.0, now)
        # Only time in the queue counts as having waited.
        self._queue(call, now, now - (call.left_line_at - call.in_line_since), again=True)

    def _queue(self, call: Call, now: float, since: float, *, again: bool = False) -> None:
        call.in_line_since = since
        entry = self._entry(call)
        decision = self._dispatcher.enqueue(entry, now, again=again)
        if isinstance(decision, Shed):
            call.retry_after_s = decision.retry_after_s
            self._door.end(call, decision.outcome, now)
            return
        self._calls[call.request_id] = call
        for request_id in decision.evicted:
            self._evict(request_id, Outcome.EVICTED_SATURATED, now)
        if call.num_attempts == 0 and decision.wait is not None and decision.wait.p90_s > 0:
            call.predicted_p90_s = decision.wait.p90_s
        self.pump(now)

    def _entry(self, call: Call) -> QueuedRequest:
        guess = self._outputs.expected(call.rank, call.tenant, call.max_tokens)
        options = self._options
        factor = options.output_guess_factor
        if options.output_guess_sigma > 0:
            factor *= self._rng.lognormvariate(0.0, options.output_guess_sigma)
        output = max(1, min(call.max_tokens, round(guess * factor)))
        prompt = call.num_prompt_tokens
        return QueuedRequest(
            request_id=call.request_id,
            rank=call.rank,
            tenant=call.tenant,
            weight=call.weight,
            cost=request_cost(self._prices, prompt, output),
            tokens=prompt + output,
            arrival=call.in_line_since,
            deadline=call.deadline,
            prompt_tokens=prompt,
        )

    def settle(self, call: Call, num_cached: int, now: float, *, completed: bool) -> None:
        """See `Gateway`."""
        node = self._pool.nodes[call.node]
        self._pool.give_back(node, call.served_rank, started=call.started)
        self._pool.tick(node, now)
        # Of one without a token nothing is known, as at the gateway; a lost node served none.
        cost = 0.0 if call.node in call.lost_at else None
        if call.num_tokens > 0:
            cost = request_cost(self._prices, call.num_prompt_tokens, call.num_tokens, num_cached)
        self._dispatcher.settle(call.request_id, cost, now)
        if completed:
            self._outputs.observe(call.rank, call.tenant, call.num_tokens)

    def tokens(self, calls: Sequence[Call], now: float) -> None:
        """See `Gateway`. headway's own engines keep their targets themselves."""
        for call in calls:
            if not call.started:
                call.started = True
                self._pool.started(self._pool.nodes[call.node], call.served_rank)
        if not self._reporting:
            for call in calls:
                gap_s = None if call.first_at is None else now - call.last_at
                self._pool.nodes[call.node].meter.tokens_came(call.rank, 1, gap_s)

    def observe(self, nodes: Sequence[SimNode], now: float) -> None:
        """See `Gateway`; the same pages as a probe reads."""
        if now < self._probed_at + PROBE_EVERY_S:
            return
        self._probed_at = now
        for number, (node, known) in enumerate(zip(nodes, self._pool.nodes, strict=True)):
            if node.scheduler is None:
                self._preemptions[number] = 0
                continue
            stats = node.scheduler.stats()
            report = NodeReport(
                num_waiting=sum(stats.waiting),
                kv_used=stats.kv_used,
                num_preemptions=stats.num_preemptions - self._preemptions[number],
            )
            self._preemptions[number] = stats.num_preemptions
            known.meter.reported(report, now)
            self._pool.tick(known, now)

    def limit(self) -> int | None:
        """See `Gateway`."""
        return sum(node.limit for node in self._pool.nodes)

    def cancel(self, call: Call, now: float) -> None:
        """See `Gateway`."""
        if self._calls.pop(call.request_id, None) is not None:
            self._dispatcher.remove(call.request_id, now)

    def pump(self, now: float) -> None:
        """See `Gateway`; the same order as `FlowController.pump`."""
        dispatcher = self._dispatcher
        while len(dispatcher):
            for request_id in dispatcher.expired(now):
                self._expire(request_id, now)
            decision = dispatcher.next(now, self._pool.free(now))
            if not isinstance(decision, Dispatch):
                self._set_timer(decision.at if isinstance(decision, WaitUntil) else None)
                return
            self._dispatch(decision, now)

    def _dispatch(self, decision: Dispatch, now: float) -> None:
        call = self._calls.pop(decision.request_id)
        promoted_to = decision.promoted_to
        call.served_rank = call.rank if promoted_to is None else promoted_to
        prefix = f"{call.tenant}/{call.prefix_id}" if call.prefix_id else None
        avoid = [self._pool.nodes[index].name for index in call.lost_at]
        node = self._pool.place(call.served_rank, now, avoid, prefix)
        assert node is not None, "dispatched without a credit"
        self._pool.take(node, call.served_rank, prefix)
        call.started = False
        call.left_line_at = now
        self._door.send(call, self._index[node.name], now)

    def _expire(self, request_id: str, now: float) -> None:
        outcome = Outcome.EVICTED_TTL_EXPIRED
        if not self._pool.any_usable():
            outcome = Outcome.EVICTED_NO_ENDPOINTS
        self._evict(request_id, outcome, now)

    def _evict(self, request_id: str, outcome: Outcome, now: float) -> None:
        """End a call that has left the queue, with the wait that it would have now."""
        call = self._calls.pop(request_id)
        self._end(call, outcome, self._dispatcher.predicted_wait(self._entry(call), now), now)

    def _end(self, call: Call, outcome: Outcome, wait: WaitEstimate | None, now: float) -> None:
        none_well = outcome in (Outcome.REJECTED_NO_ENDPOINTS, Outcome.EVICTED_NO_ENDPOINTS)
        call.retry_after_s = NO_NODE_RETRY_AFTER_S if none_well else retry_after_s(wait)
        self._door.end(call, outcome, now)

    def _set_timer(self, at: float | None) -> None:
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            self._door.wake(at)

    def woken(self) -> None:
        """See `Gateway`."""
        self._timer_at = None

    def node_down(self, index: int, now: float) -> None:
        """See `Gateway`."""
        self._pool.refused(self._pool.nodes[index])

    def node_up(self, index: int, now: float) -> None:
        """See `Gateway`."""
        self._pool.probed(self._pool.nodes[index], ())
        self.pump(now)

    def shed_all(self, now: float) -> None:
        """See `Gateway`."""
        for request_id, call in list(self._calls.items()):
            self._dispatcher.remove(request_id)
            self._door.end(call, Outcome.EVICTED_SHUTTING_DOWN, now)
        self._calls.clear()

    def waiting(self) -> Sequence[int]:
        """See `Gateway`."""
        return [self._dispatcher.queue_depth(rank) for rank in range(len(self._tiers))]

    def check_idle(self) -> None:
        """See `Gateway`."""
        assert not self._calls, "calls still wait"
        assert len(self._dispatcher) == 0, "requests are left in the queue"
        assert self._dispatcher.num_sent == 0, "requests were never settled"
        for node in self._pool.nodes:
            assert not any(node.inflight), f"places at {node.name} were not given back"
        self._dispatcher.check_integrity()


def _node(number: int, nodes: NodesConfig, tiers: Tiers) -> Node:
    node = Node(f"node-{number}", "", tiers, nodes.max_inflight)
    if nodes.first_limit is not None:
        node.limiter.limit = nodes.first_limit
    return node
