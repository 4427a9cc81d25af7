"""What happens next, and at what time?

One heap of events in virtual time, one thread, no randomness but that of seeded generators: the
same scenario, policy and seed give the same run, event for event (G10).
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from random import Random
from typing import Any

from headway.core.outcome import Outcome
from headway.core.predictor import StepFeatures
from headway.flowcontrol.nodes import MAX_FAILURES
from headway.sim.balancer import Balancer
from headway.sim.call import Call
from headway.sim.cost_model import CostModel, StepNoise, cost_model
from headway.sim.gateway import Door, Gateway, QoSGateway
from headway.sim.node import Running, SimNode
from headway.sim.plan_log import PlanLog
from headway.sim.policies import REPORTING, check_policy, is_queued, new_scheduler, tiers_under
from headway.sim.records import Recorder
from headway.sim.scenario import NodeSlow, Scenario
from headway.sim.scheduler import EngineShape, PolicySetup, SimRequest, StepScheduler
from headway.sim.workload import Source

PAUSE_AFTER_INVALID_S = 1.0
"""A caller whose request can never fit was told no time to wait; time has to go on for it."""
Watch = Callable[[float, int], None]
"""Called each virtual second with the time and the number of calls that have ended."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run leaves behind."""

    recorder: Recorder
    num_steps: int
    num_events: int
    ended_at: float


def policy_setup(scenario: Scenario, policy: str, model: CostModel) -> PolicySetup:
    """Return what the policy of each engine is made from."""
    nodes = scenario.nodes

    def measure(features: StepFeatures) -> float:
        return model.time_s(features) * nodes.predictor_error

    shape = EngineShape(
        max_num_seqs=nodes.max_num_seqs,
        max_num_batched_tokens=nodes.max_num_batched_tokens,
        num_blocks=nodes.num_blocks,
        block_size=nodes.block_size,
        enable_prefix_caching=nodes.enable_prefix_caching,
    )
    return PolicySetup(
        shape=shape,
        tiers=tiers_under(policy, scenario.tiers),
        keep_targets=nodes.keep_targets,
        knobs=scenario.policy,
        measure=measure,
    )


class World:
    """One run of one scenario under one policy."""

    def __init__(
        self,
        scenario: Scenario,
        policy: str,
        seed: int | None = None,
        *,
        plan_log: PlanLog | None = None,
        watch: Watch | None = None,
        may_repeat: bool = True,
    ) -> None:
        """Build everything, at time 0. Raises ConfigError."""
        check_policy(policy)
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self._policy = policy
        self._tiers = tiers_under(policy, scenario.tiers)
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._num_events = 0
        self._now = 0.0
        self._calls: dict[str, Call] = {}
        self._plan_log = plan_log
        self._watch = watch
        self._may_repeat = may_repeat and plan_log is None
        self._model = cost_model(scenario.nodes.cost_model)
        self.recorder = Recorder(scenario)
        self.nodes = [self._new_node(index) for index in range(scenario.nodes.count)]
        self.gateway = self._new_gateway()
        self._sources = [Source(scenario, n, self.seed) for n in range(len(scenario.streams))]
        self._schedule_all()

    # -- building -------------------------------------------------------------------------------

    def _new_node(self, index: int) -> SimNode:
        nodes = self.scenario.nodes
        rng = Random(f"{self.seed}/node/{index}")
        noise = StepNoise(rng, nodes.noise, nodes.spike_probability, nodes.spike_factor)
        node = SimNode(index, self._model, noise, nodes.predictor_error)
        node.start(self._new_engine())
        return node

    def _new_engine(self) -> StepScheduler:
        setup = policy_setup(self.scenario, self._policy, self._model)
        return new_scheduler(self._policy, replace(setup, may_repeat=self._may_repeat))

    def _new_gateway(self) -> Gateway:
        scenario = self.scenario
        door = Door(self._send, self._end, self._wake_at)
        if not is_queued(self._policy):
            return Balancer(len(self._tiers), scenario.nodes.count, door)
        rng = Random(f"{self.seed}/gateway")
        reporting = self._policy in REPORTING
        return QoSGateway(scenario, self._tiers, door, rng, reporting=reporting)

    def _schedule_all(self) -> None:
        # At one instant what ends is before what begins, in whichever order they are listed.
        for event in self.scenario.events:
            if isinstance(event, NodeSlow):
                self._at(event.until_s, self._node_slows, (event.node, 1.0))
            elif event.until_s is not None:
                self._at(event.until_s, self._node_revives, event.node)
        for event in self.scenario.events:
            if isinstance(event, NodeSlow):
                self._at(event.at_s, self._node_slows, (event.node, event.factor))
            else:
                self._at(event.at_s, self._node_dies, event.node)
        for source in self._sources:
            self._next_arrival(source.calls())
            for call in source.first_of_callers():
                self._at(call.arrival, self._arrive, call)
        self._at(1.0, self._tick, 1)

    # -- events ---------------------------------------------------------------------------------

    def _at(self, time: float, act: Callable[[Any], None], argument: object) -> None:
        self._num_events += 1
        heappush(self._heap, (time, self._num_events, act, argument))

    def run(self) -> Finished:
        """Run to the end: all arrivals, and `drain_s` for what is left. Returns what was seen.

        At the end, every request has its outcome and nothing is held by anybody (I0).
        """
        # Nothing here makes cycles, and there are millions of objects to look for them in.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._run()
        finally:
            if collecting:
                gc.enable()
        self.recorder.keep(self.nodes, self._now)
        self._cut_off()
        self._check_idle()
        steps = sum(node.num_steps for node in self.nodes)
        return Finished(self.recorder, steps, self._num_events, self._now)

    def _run(self) -> None:
        heap = self._heap
        horizon = self.scenario.duration_s + self.scenario.drain_s
        while heap and heap[0][0] <= horizon:
            # The tick at the end of arrivals is the last that a report needs.
            if not self._calls and heap[0][0] > self.scenario.duration_s:
                break
            self._now, _, act, argument = heappop(heap)
            act(argument)

    def _next_arrival(self, calls: Iterator[Call]) -> None:
        call = next(calls, None)
        if call is not None:
            self._at(call.arrival, self._arrive_open, (call, calls))

    def _arrive_open(self, argument: tuple[Call, Iterator[Call]]) -> None:
        call, calls = argument
        self._next_arrival(calls)
        self._arrive(call)

    def _arrive(self, call: Call) -> None:
        self._calls[call.request_id] = call
        self.recorder.arrived(call)
        if not self._fits(call):
            call.retry_after_s = PAUSE_AFTER_INVALID_S
            self._end(call, Outcome.REJECTED_INVALID, self._now)
            return
        if call.cancel_at is not None:
            self._at(call.cancel_at, self._cancel, call)
        self.gateway.submit(call, self._now)

    def _fits(self, call: Call) -> bool:
        """Whether an engine can ever hold it; what it asks for beyond that is cut off."""
        nodes = self.scenario.nodes
        room = nodes.num_blocks * nodes.block_size - call.num_prompt_tokens
        call.max_tokens = min(call.max_tokens, room)
        return room >= call.num_output_tokens

    def _send(self, call: Call, index: int, now: float) -> None:
        """The gateway has decided: the call goes to this node."""
        node = self.nodes[index]
        call.node = index
        call.num_attempts += 1
        if call.sent_at is None:
            call.sent_at = now
        node.add(_request(call), now)
        self._deliver(node)
        if node.is_idle:
            self._begin(node)

    def _begin(self, node: SimNode) -> None:
        running = node.begin(self._now)
        if running is None or not running.step.is_repeat:
            self._deliver(node)
        if running is not None:
            self._at(running.ends_at, self._step_ends, (node, running))
            if self._plan_log is not None:
                self._plan_log.step(self._now, node.index, running.step, running.took_s)

    def _step_ends(self, argument: tuple[SimNode, Running]) -> None:
        node, running = argument
        if node.running is not running:
            return
        now = self._now
        emissions = node.end(now)
        self.recorder.step(running, now)
        ended = False
        calls = [self._calls[emission.request_id] for emission in emissions]
        if not running.step.is_repeat:
            self.gateway.tokens(calls, now)
            self.recorder.tokens(calls, now)
        elif calls:
            self._deliver(node)
        for emission, call in zip(emissions, calls, strict=True):
            if emission.finished:
                ended = True
                call.num_preemptions += emission.num_preemptions
                self.gateway.settle(call, emission.num_cached_tokens, now, completed=True)
                self._end(call, Outcome.COMPLETED, now)
        if node.is_idle:
            self._begin(node)
        if ended:
            self.gateway.pump(now)

    def _deliver(self, node: SimNode) -> None:
        """Give the clients what equal steps brought; nothing else depended on it so far."""
        while (repeated := node.take_repeated()) is not None:
            calls = [self._calls[request_id] for request_id in repeated.request_ids]
            self.recorder.repeated(calls, repeated.ends)

    def _end(self, call: Call, outcome: Outcome, now: float) -> None:
        """Give the call its one outcome."""
        assert call.outcome is None, f"{call.request_id} has ended twice"
        call.outcome = outcome
        call.ended_at = now
        call.node = -1
        del self._calls[call.request_id]
        self.recorder.ended(call)
        if self._plan_log is not None:
            self._plan_log.end(now, call)
        following = self._sources[call.source].after(call)
        if following is not None:
            self._at(following.arrival, self._arrive, following)

    def _cancel(self, call: Call) -> None:
        """The client leaves, wherever its request is."""
        if call.outcome is not None:
            return
        self._withdraw(call)
        self._end(call, Outcome.CANCELLED, self._now)
        self.gateway.pump(self._now)

    def _withdraw(self, call: Call) -> None:
        if call.node < 0:
            self.gateway.cancel(call, self._now)
            return
        scheduler = self.nodes[call.node].scheduler
        if scheduler is not None:
            call.num_preemptions += scheduler.num_preemptions(call.request_id)
            scheduler.abort(call.request_id)
            self._deliver(self.nodes[call.node])
        self.gateway.settle(call, 0, self._now, completed=False)

    # -- nodes ----------------------------------------------------------------------------------

    def _node_dies(self, index: int) -> None:
        """What has begun to answer fails, as a stream cannot begin anew; the rest is sent again.

        That is, it goes back to the gateway, in the order of arrival, unless that has happened to
        it too often.
        """
        node = self.nodes[index]
        node.catch_up()
        self._deliver(node)
        self.recorder.keep([node], self._now)
        lost = [call for call in self._calls.values() if call.node == index]
        for call in lost:
            assert node.scheduler is not None, f"node {index} is down"
            call.num_preemptions += node.scheduler.num_preemptions(call.request_id)
        node.die()
        self.gateway.node_down(index, self._now)
        for call in sorted(lost, key=lambda each: (each.arrival, each.request_id)):
            call.lost_at += (index,)
            if call.num_tokens > 0 or len(call.lost_at) >= MAX_FAILURES:
                self.gateway.settle(call, 0, self._now, completed=False)
                self._end(call, Outcome.FAILED_NODE, self._now)
            else:
                call.num_preemptions += 1
                self.gateway.submit_again(call, self._now)

    def _node_revives(self, index: int) -> None:
        self.nodes[index].start(self._new_engine())
        self._at(self._now + self.scenario.nodes.retry_s, self._node_found, index)

    def _node_found(self, index: int) -> None:
        if self.nodes[index].scheduler is not None:
            self.gateway.node_up(index, self._now)

    def _node_slows(self, argument: tuple[int, float]) -> None:
        index, factor = argument
        self.nodes[index].slow_factor = factor

    # -- time -----------------------------------------------------------------------------------

    def _wake_at(self, at: float) -> None:
        self._at(at, self._wake, None)

    def _wake(self, _: object) -> None:
        self.gateway.woken()
        self.gateway.pump(self._now)

    def _tick(self, second: int) -> None:
        for node in self.nodes:
            node.catch_up()
            self._deliver(node)
        self.gateway.observe(self.nodes, self._now)
        gateway = self.gateway
        self.recorder.tick(self._now, gateway.waiting(), gateway.limit(), self.nodes)
        if self._watch is not None:
            self._watch(self._now, self.recorder.num_ended)
        if self._now < self.scenario.duration_s + self.scenario.drain_s:
            self._at(second + 1.0, self._tick, second + 1)

    # -- the end --------------------------------------------------------------------------------

    def _cut_off(self) -> None:
        """The run is over: whatever still waits or runs is unfinished."""
        self._heap.clear()
        self.gateway.shed_all(self._now)
        for call in list(self._calls.values()):
            self._withdraw(call)
            self._end(call, Outcome.EVICTED_SHUTTING_DOWN, self._now)

    def _check_idle(self) -> None:
        """Raise AssertionError unless all is as before the first request (I0)."""
        assert not self._calls, f"without outcome: {sorted(self._calls)[:3]}"
        self.gateway.check_idle()
        for node in self.nodes:
            if node.scheduler is not None:
                node.scheduler.check_integrity()
        self.recorder.check_balanced()


def _request(call: Call) -> SimRequest:
    """What the node gets; promoted work in the tier in which it got its place."""
    return SimRequest(
        request_id=call.request_id,
        rank=call.rank_at_node,
        tenant=call.tenant,
        weight=call.weight,
        arrival=call.arrival,
        num_prompt_tokens=call.num_prompt_tokens,
        num_output_tokens=call.num_output_tokens,
        max_tokens=call.max_tokens,
        deadline=call.deadline,
        prefix_id=call.prefix_id,
        num_prefix_tokens=call.num_prefix_tokens,
    )
