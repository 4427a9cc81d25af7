"""Does a run lose nothing, and is it the same each time?"""

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from headway.core.outcome import Outcome
from headway.errors import ConfigError
from headway.flowcontrol.controller import NO_NODE_RETRY_AFTER_S
from headway.sim.call import Call
from headway.sim.measures import RunReport
from headway.sim.plan_log import PlanLog
from headway.sim.records import OUTCOMES, Rows
from headway.sim.run import simulate
from headway.sim.world import World
from tests.sim.small import BASE, BULK, CRITICAL, scenario


def test_each_request_has_one_outcome_and_nothing_is_held_at_the_end() -> None:
    """G9, I0: the world itself checks that every part is as before the first request."""
    world = World(scenario(), "headway")
    finished = world.run()
    assert finished.recorder.num_arrived == finished.recorder.num_ended > 60


def test_a_drained_run_completes_all_and_gives_each_all_its_tokens() -> None:
    world = World(scenario(), "headway")
    rows = world.run().recorder.rows
    assert set(rows.outcome) == {0}
    assert sum(rows.output_tokens) == sum(
        sum(second.tokens) for second in world.recorder.seconds
    ) + sum(world.recorder.rest.tokens)


@pytest.mark.parametrize("drain_s", [0, 20])
@pytest.mark.parametrize("duration_s", [10, 11])
def test_all_seconds_of_arrivals_are_reported(duration_s: int, drain_s: int) -> None:
    """Five steps of two seconds: the last call ends as the last second does, or before it."""
    nodes = {"cost_model": {"base_s": 2.0}, "noise": 0, "spike_probability": 0}
    lone = {**CRITICAL, "arrivals": {"kind": "backlog", "count": 1}, "output_tokens": 5}
    report = simulate(scenario(lone, duration_s=duration_s, drain_s=drain_s, nodes=nodes), "fcfs")
    assert report.course_s == [float(second) for second in range(1, duration_s + 1)]
    assert report.tokens_per_s == 5 / duration_s


def test_requests_cut_off_by_the_horizon_have_their_outcome_too() -> None:
    world = World(scenario(drain_s=0), "headway")
    rows = world.run().recorder.rows
    assert len(set(rows.outcome)) == 2


class Ends(PlanLog):
    """Keeps the requests as they end."""

    def __init__(self) -> None:
        super().__init__(StringIO())
        self.calls: list[Call] = []

    def end(self, now: float, call: Call) -> None:
        """See `PlanLog`."""
        self.calls.append(call)

    def num_moves(self) -> int:
        """Return how often a request lost its node and waited again; who ended with it did not."""
        lost = sum(len(call.lost_at) for call in self.calls)
        return lost - sum(call.outcome is Outcome.FAILED_NODE for call in self.calls)


def test_what_a_dying_node_had_not_begun_to_answer_is_served_elsewhere() -> None:
    """Streams fail that have begun, as at the gateway; of the others each token comes once."""
    events = [
        {"kind": "node-down", "node": 0, "at_s": 2.0, "until_s": 3.5},
        {"kind": "node-down", "node": 1, "at_s": 5.0},
        {"kind": "node-slow", "node": 0, "at_s": 6.5, "until_s": 8.0, "factor": 3.0},
    ]
    many = {**CRITICAL, "arrivals": {"kind": "poisson", "rate": 10}}
    nodes = {"count": 2, "max_num_seqs": 16, "num_blocks": 512, "max_num_batched_tokens": 512}
    ends = Ends()
    world = World(scenario(many, BULK, events=events, nodes=nodes), "headway", plan_log=ends)
    rows = world.run().recorder.rows
    again = World(scenario(many, BULK, nodes=nodes), "headway").run().recorder.rows
    whole = dict(zip(again.arrival, again.output_tokens, strict=True))
    outcomes = [OUTCOMES[number] for number in rows.outcome]
    assert set(outcomes) == {Outcome.COMPLETED, Outcome.FAILED_NODE}
    for row, outcome in enumerate(outcomes):
        if rows.rank[row] == 0:
            is_whole = rows.output_tokens[row] == whole[rows.arrival[row]]
            assert is_whole == (outcome is Outcome.COMPLETED)
    assert ends.num_moves() > 0
    lost = [call for call in ends.calls if call.lost_at]
    assert all((call.outcome is Outcome.COMPLETED) == (call.num_attempts == 2) for call in lost)


def test_what_a_dying_node_counted_is_in_the_report() -> None:
    """So few blocks that nodes preempt before one is lost."""
    nodes = {"count": 2, "max_num_seqs": 16, "num_blocks": 60, "max_num_batched_tokens": 512}
    until = {"duration_s": 10, "nodes": nodes}
    lost = [{"kind": "node-down", "node": 0, "at_s": 9.9}]
    whole, without = (
        simulate(scenario(CRITICAL, BULK, events=events, **until), "fcfs") for events in ([], lost)
    )
    assert whole.num_preemptions > 4
    assert without.num_preemptions > 0.7 * whole.num_preemptions


@pytest.mark.parametrize(
    "policy", ["headway", "fcfs", "vllm-priority", "sarathi", "static-partition", "vtc"]
)
def test_each_preemption_is_one_of_a_request_however_it_ends(policy: str) -> None:
    """Some clients leave, some requests are lost with their node, some are cut off at the end.

    One that is sent again has lost its blocks once more.
    """
    small = {**BASE["nodes"], "count": 2, "num_blocks": 60, "max_num_batched_tokens": 512}
    bulk = {**BULK, "cancel_share": 0.3, "cancel_after_s": 20.0, "output_tokens": 100}
    bulk["prompt_tokens"] = 100
    lost = [{"kind": "node-down", "node": 0, "at_s": 4.0}]
    ends = Ends()
    made = scenario(bulk, nodes=small, events=lost, drain_s=0)
    recorder = World(made, policy, plan_log=ends).run().recorder
    rows = recorder.rows
    outcomes = {OUTCOMES[number] for number in rows.outcome}
    assert {Outcome.CANCELLED, Outcome.FAILED_NODE, Outcome.EVICTED_SHUTTING_DOWN} <= outcomes
    total = sum(engine.num_preemptions for engine in recorder.engines)
    assert total > 0
    assert sum(rows.num_preemptions) == total + ends.num_moves()


def test_only_time_in_the_queue_counts_when_a_node_is_lost() -> None:
    """Critical may queue for five seconds; these were at a node for longer, without a token."""
    events = [
        {"kind": "node-slow", "node": 0, "at_s": 0.0, "until_s": 8.0, "factor": 1000.0},
        {"kind": "node-down", "node": 0, "at_s": 8.0, "until_s": 8.5},
    ]
    few = {**CRITICAL, "arrivals": {"kind": "poisson", "rate": 1}}
    nodes = {"count": 2, "max_num_seqs": 16, "num_blocks": 512, "max_num_batched_tokens": 512}
    rows = World(scenario(few, events=events, nodes=nodes), "headway").run().recorder.rows
    moved = [row for row, times in enumerate(rows.num_preemptions) if times]
    assert min(rows.arrival[row] for row in moved) < 2.5
    assert {OUTCOMES[rows.outcome[row]] for row in moved} == {Outcome.COMPLETED}


def lost(rows: Rows, row: int) -> bool:
    """Return whether the request ended with its node."""
    return OUTCOMES[rows.outcome[row]] is Outcome.FAILED_NODE


@pytest.mark.parametrize("policy", ["headway", "gateway+fcfs", "fcfs"])
def test_who_loses_two_nodes_fails_as_at_the_gateway(policy: str) -> None:
    """Nobody gets a token for eight seconds, in which two of three nodes die."""
    events: list[dict[str, object]] = [
        {"kind": "node-slow", "node": node, "at_s": 0.0, "until_s": 8.0, "factor": 1000.0}
        for node in range(3)
    ]
    events += [
        {"kind": "node-down", "node": node, "at_s": at_s, "until_s": 8.0}
        for node, at_s in enumerate((3.0, 6.0))
    ]
    nodes = {"count": 3, "max_num_seqs": 16, "num_blocks": 512, "max_num_batched_tokens": 512}
    rows = World(scenario(CRITICAL, events=events, nodes=nodes), policy).run().recorder.rows
    twice = [row for row, arrival in enumerate(rows.arrival) if arrival < 3 and lost(rows, row)]
    assert twice
    assert {rows.output_tokens[row] for row in twice} == {0}
    assert not any(lost(rows, row) for row, arrival in enumerate(rows.arrival) if arrival > 3)


@pytest.mark.parametrize("policy", ["headway", "fcfs"])
@pytest.mark.parametrize(
    "change", [{"kind": "node-down"}, {"kind": "node-slow", "factor": 5.0}], ids=["down", "slow"]
)
def test_what_happens_right_after_the_same_may_be_listed_before_it(
    change: dict[str, object], policy: str
) -> None:
    events = [{**change, "node": 0, "at_s": at_s, "until_s": at_s + 2} for at_s in (2.0, 4.0)]
    forwards, backwards, only_first = (
        World(scenario(CRITICAL, events=listed), policy).run().recorder.rows
        for listed in (events, events[::-1], events[:1])
    )
    assert vars(backwards) == vars(forwards)
    assert vars(only_first) != vars(forwards)


@pytest.mark.parametrize("policy", ["headway", "gateway+fcfs"])
def test_promoted_work_is_served_in_the_tier_in_which_it_got_its_place(policy: str) -> None:
    """Nobody sends normal work, but bulk that is nearly late moves up to it."""
    late = {**BULK, "arrivals": {"kind": "backlog", "count": 120}, "deadline_s": 6.0}
    recorder = (
        World(scenario(late, nodes={**BASE["nodes"], "max_inflight": 4}), policy).run().recorder
    )
    critical, normal, bulk = (
        (
            sum(second.computed[rank] for second in recorder.seconds),
            sum(second.service[rank] for second in recorder.seconds),
        )
        for rank in range(3)
    )
    assert critical == (0, 0.0)
    for computed, service in (normal, bulk):
        assert service > computed > 0, "a decoded token costs more where it is computed"
    tokens = [sum(second.tokens[rank] for second in recorder.seconds) for rank in range(3)]
    assert tokens[:2] == [0, 0], "its client gets them in the tier that it asked for"


def test_clients_that_leave_are_cancelled_and_free_what_they_held() -> None:
    leaving = {**BULK, "cancel_share": 0.5, "cancel_after_s": 3.0}
    report = simulate(scenario(CRITICAL, leaving), "headway")
    outcomes = report.tiers[2].outcomes
    assert outcomes["cancelled"] > 5
    assert outcomes["completed"] > 10


def test_a_closed_loop_never_has_more_than_its_callers() -> None:
    closed = {**BULK, "arrivals": {"kind": "closed", "callers": 3, "think_s": 0.1}}
    world = World(scenario(closed), "headway")
    world.run()
    together = [s.waiting[2] + s.running[2] for s in world.recorder.seconds]
    assert 0 < max(together) <= 3


def test_while_no_node_is_well_callers_come_again_as_soon_as_at_the_gateway() -> None:
    """Half a second after each refusal, for eight seconds of the ten."""
    closed = {**CRITICAL, "arrivals": {"kind": "closed", "callers": 1}}
    event = {"kind": "node-down", "node": 0, "at_s": 1.0, "until_s": 9.0}
    report = simulate(scenario(closed, events=[event]), "headway")
    refused = report.tiers[0].outcomes[Outcome.REJECTED_NO_ENDPOINTS]
    assert 8.0 / NO_NODE_RETRY_AFTER_S - 1 <= refused <= 10.0 / NO_NODE_RETRY_AFTER_S


def test_a_request_that_can_never_fit_is_refused() -> None:
    huge = {**CRITICAL, "prompt_tokens": 512 * 16}
    report = simulate(scenario(huge), "headway")
    assert report.tiers[0].outcomes.keys() == {"rejected-invalid"}


def test_time_goes_on_for_a_caller_whose_requests_never_fit() -> None:
    stubborn = {**CRITICAL, "arrivals": {"kind": "closed", "callers": 2}, "prompt_tokens": 512 * 16}
    report = simulate(scenario(stubborn), "fcfs")
    assert report.tiers[0].outcomes == {"rejected-invalid": 2 * 10}


def test_a_step_that_takes_no_time_ends_the_run_with_the_key_that_is_wrong() -> None:
    model = {"base_s": 0.01, "decode_context_s": -1e-4}
    nodes = {"max_num_seqs": 16, "num_blocks": 512, "cost_model": model}
    with pytest.raises(ConfigError, match=r"nodes.cost_model: a step of .* would take -"):
        simulate(scenario(nodes=nodes), "headway")


def _report(seed: int) -> RunReport:
    return simulate(scenario(), "headway", seed)


def test_another_seed_is_another_run() -> None:
    assert _report(1) == _report(1)
    assert _report(1) != _report(2)


@pytest.mark.parametrize("policy", ["headway"])
def test_two_processes_write_the_same_plan_log(tmp_path: Path, policy: str) -> None:
    """G10, M15: byte for byte."""
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    for log in logs:
        command = [sys.executable, "-m", "headway", "simulate", "bulk-flood"]
        command += ["--policy", policy, "--plan-log", str(log)]
        for pair in ("duration_s=4", "warmup_s=0", "drain_s=2", "streams.bulk.arrivals.count=40"):
            command += ["--set", pair]
        subprocess.run(command, check=True, capture_output=True)
    first, second = (log.read_bytes() for log in logs)
    assert first == second
    assert first.count(b" step ") > 50
    assert first.count(b" end ") > 40


def test_before_a_foreign_engine_the_gateway_learns_how_much_it_takes() -> None:
    many = {**BULK, "arrivals": {"kind": "backlog", "count": 300}}
    nodes = {"max_num_seqs": 64, "num_blocks": 2048, "first_limit": 4}
    stream = scenario(CRITICAL, many, nodes=nodes, duration_s=20, drain_s=0)
    limits = simulate(stream, "gateway+vllm-priority").limit
    assert limits[0] == 4
    known = [limit for limit in limits if limit is not None]
    assert max(known) > 4
    assert set(simulate(stream, "vllm-priority").limit) == {None}
    assert set(simulate(stream, "headway").limit) == {64}
