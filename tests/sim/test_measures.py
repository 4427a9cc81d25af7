"""Do the figures mean what they say they mean?"""

import pytest

from headway.core.outcome import Outcome
from headway.core.predictor import StepFeatures
from headway.sim.call import Call
from headway.sim.measures import measure
from headway.sim.node import Running
from headway.sim.records import Account, Recorder, Second
from headway.sim.run import simulate
from headway.sim.scenario import Scenario
from headway.sim.scheduler import SimStep
from headway.sim.shares import JAIN_WINDOW_S, WINDOW_S, jain_index, least_share
from tests.sim.small import CRITICAL, scenario


def call(number: int, rank: int = 0, arrival: float = 1.0, **fields: object) -> Call:
    made = Call(
        request_id=f"r{number}",
        source=0,
        rank=rank,
        tenant="a",
        weight=1.0,
        arrival=arrival,
        num_prompt_tokens=100,
        num_output_tokens=3,
        max_tokens=10,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def served(recorder: Recorder, each: Call, *times: float, wait_s: float = 0.0) -> None:
    """Let a call arrive, get a token at each of `times`, and complete."""
    recorder.arrived(each)
    each.sent_at = each.arrival + wait_s
    for at in times:
        recorder.tokens([each], at)
    ended(recorder, each, Outcome.COMPLETED, times[-1])


def ended(recorder: Recorder, each: Call, outcome: Outcome, at: float) -> None:
    each.outcome, each.ended_at = outcome, at
    recorder.ended(each)


def ten_seconds() -> tuple[Scenario, Recorder]:
    made = scenario(CRITICAL, duration_s=10, warmup_s=1)
    return made, Recorder(made)


def test_attainment_counts_all_submitted_and_each_target() -> None:
    """Targets of critical: 0.5 s to the first token, 50 ms mean gap, 200 ms longest."""
    made, recorder = ten_seconds()
    served(recorder, call(1), 1.4, 1.44, 1.48)
    served(recorder, call(2), 1.6, 1.64, 1.68)
    served(recorder, call(3), 1.4, 1.48, 1.56)
    served(recorder, call(4), 1.4, *(1.4 + 0.01 * n for n in range(1, 10)), 1.8)
    for number, outcome in ((5, Outcome.REJECTED_SATURATED), (6, Outcome.CANCELLED)):
        each = call(number)
        recorder.arrived(each)
        ended(recorder, each, outcome, 1.2)
    served(recorder, call(7, arrival=0.5), 0.6, 0.64)
    tier = measure(recorder, made, "headway", 0, 0).tiers[0]
    assert tier.num_submitted == 6, "the warm-up does not count"
    assert tier.num_completed == 4
    assert tier.attainment == pytest.approx(1 / 5), "late, slow, stalled and refused all miss"
    assert tier.goodput_rps == pytest.approx(1 / 9)
    assert tier.goodput_tokens_per_s == pytest.approx(3 / 9)
    assert tier.ttft_s.p50 == pytest.approx(0.4)
    assert tier.outcomes == {"cancelled": 1, "completed": 4, "rejected-saturated": 1}


def test_what_ends_after_its_own_deadline_has_not_attained_its_targets() -> None:
    made, recorder = ten_seconds()
    served(recorder, call(1, deadline=1.48), 1.4, 1.44, 1.48)
    served(recorder, call(2, deadline=1.47), 1.4, 1.44, 1.48)
    tier = measure(recorder, made, "headway", 0, 0).tiers[0]
    assert (tier.num_completed, tier.attainment) == (2, 0.5)


def test_gaps_are_over_tokens_and_tpot_over_requests() -> None:
    made, recorder = ten_seconds()
    served(recorder, call(1), 1.1, *(1.1 + 0.01 * n for n in range(1, 100)))
    served(recorder, call(2), 1.1, 1.6)
    tier = measure(recorder, made, "headway", 0, 0).tiers[0]
    assert tier.gap_s.p50 == pytest.approx(0.01, abs=2e-4)
    assert tier.gap_s.p99 == pytest.approx(0.01, abs=2e-4)
    assert tier.tpot_s.p50 == pytest.approx((0.01 + 0.5) / 2, abs=2e-4)


def test_gaps_are_of_requests_that_arrived_in_the_measured_time() -> None:
    """Nine seconds of ten are measured; a stream counts with all its gaps, or with none."""
    made, recorder = ten_seconds()
    early, last = call(1, arrival=0.9), call(2, arrival=9.9)
    for each, first, gap_s in ((early, 0.95, 0.5), (last, 9.95, 0.1)):
        recorder.arrived(each)
        recorder.tokens([each], first)
        recorder.tokens([each], first + gap_s)
        recorder.repeated([each], [first + 2 * gap_s, first + 3 * gap_s])
        ended(recorder, each, Outcome.COMPLETED, first + 3 * gap_s)
    tier = measure(recorder, made, "headway", 0, 0).tiers[0]
    assert recorder.gaps[0].total() == 3
    assert tier.gap_s.p50 == pytest.approx(0.1, abs=2e-4)
    assert tier.gap_s.p99 == pytest.approx(0.1, abs=2e-4)


def test_waits_within_the_prediction_are_counted() -> None:
    made, recorder = ten_seconds()
    for number, wait_s in enumerate((0.1, 0.3, 0.5, 0.9)):
        served(recorder, call(number, predicted_p90_s=0.5), 2.0, wait_s=wait_s)
    served(recorder, call(9), 2.0, wait_s=5.0)
    report = measure(recorder, made, "headway", 0, 0)
    assert report.num_waits_predicted == 4
    assert report.wait_calibration == pytest.approx(0.75)


def test_who_leaves_unserved_after_the_p90_has_waited_longer_than_it() -> None:
    made, recorder = ten_seconds()
    served(recorder, call(0, predicted_p90_s=0.5), 2.0, wait_s=0.1)
    left = ((Outcome.EVICTED_TTL_EXPIRED, 1.6), (Outcome.CANCELLED, 1.6), (Outcome.CANCELLED, 1.4))
    for number, (outcome, at) in enumerate(left, start=1):
        each = call(number, predicted_p90_s=0.5)
        recorder.arrived(each)
        ended(recorder, each, outcome, at)
    report = measure(recorder, made, "headway", 0, 0)
    assert report.num_waits_predicted == 3, "of who left sooner nothing is known"
    assert report.wait_calibration == pytest.approx(1 / 3)


def test_fill_lateness_and_error_are_of_the_steps_after_the_warm_up() -> None:
    made, recorder = ten_seconds()
    features = StepFeatures(num_tokens=50, num_prefills=1)
    early = SimStep(features, (50, 0, 0), None, 1, 9.0, 9.0)
    recorder.step(Running(early, 0.5, 0.1, 1), 0.5)
    for took_s in (0.02, 0.04):
        step = SimStep(features, (50, 0, 0), None, 100, 0.025, 0.03)
        recorder.step(Running(step, 2.0, took_s, 1), 2.0)
    report = measure(recorder, made, "headway", 0, 3)
    assert report.token_fill == pytest.approx(0.5)
    assert report.time_fill == pytest.approx(0.025 / 0.03)
    assert report.late_share == pytest.approx(0.5)
    assert report.prediction_error == pytest.approx((0.005 + 0.015) / 0.06)
    assert report.busy == pytest.approx(0.06 / 9)
    assert report.mean_step_s == pytest.approx(0.03)


def test_busy_is_of_the_measured_time_alone() -> None:
    """Measured are nine seconds; steps that begin or end outside of them are so for a part."""
    made, recorder = ten_seconds()
    step = SimStep(StepFeatures(num_tokens=1, num_decodes=1), (1, 0, 0))
    for begin, end, busy_s in ((0.2, 0.8, 0), (0.9, 1.5, 0.5), (2.0, 3.0, 1), (9.5, 12.0, 0.5)):
        before_s = recorder.busy_s
        recorder.step(Running(step, end, end - begin, 1), end)
        assert recorder.busy_s - before_s == pytest.approx(busy_s)
    assert measure(recorder, made, "headway", 0, 4).busy == pytest.approx(2 / 9)


@pytest.mark.parametrize("drain_s", [0, 60])
@pytest.mark.parametrize(
    ("events", "busy"), [([], 1.0), ([{"kind": "node-down", "node": 0, "at_s": 19.5}], 0.75)]
)
def test_steps_across_the_bounds_are_busy_for_their_part(
    drain_s: float, events: list[dict[str, object]], busy: float
) -> None:
    """Two seconds are measured; steps take 19 s, and the first ends within them."""
    nodes = {"cost_model": {"base_s": 19.0}, "noise": 0, "spike_probability": 0}
    lone = {**CRITICAL, "arrivals": {"kind": "backlog", "count": 1}, "output_tokens": 9}
    spans = {"duration_s": 20, "warmup_s": 18, "drain_s": drain_s}
    report = simulate(scenario(lone, nodes=nodes, events=events, **spans), "fcfs")
    assert report.busy == pytest.approx(busy)


def seconds(bulk: list[float], waiting: int = 1) -> list[Second]:
    """Return seconds of 10 units of service each, so much of them bulk's."""
    return [
        Second(
            service=[10.0 - part, part],
            tokens=[0, 0],
            computed=[0, 0],
            waiting=[0, waiting],
            running=[0, 0],
        )
        for part in bulk
    ]


def test_least_share_is_over_every_window_in_which_the_tier_waited() -> None:
    """B1: sliding windows, not only those that begin at a multiple of 30 s."""
    bulk = [1.0] * 20 + [0.0] * WINDOW_S + [1.0] * 10
    assert least_share(seconds(bulk), 1) == 0.0
    bulk = [1.0] * 20 + [0.0] * 15 + [1.0] * 25
    assert least_share(seconds(bulk), 1) == pytest.approx(15 / 300)
    course = seconds(bulk)
    course[27].waiting[1] = 0
    assert least_share(course, 1) == pytest.approx(23 / 300), "windows with second 27 do not count"
    assert least_share(seconds(bulk, waiting=0), 1) is None
    assert least_share(seconds(bulk[:10]), 1) is None


def test_jain_is_1_for_service_in_proportion_to_weight() -> None:
    accounts = [Account(1, "a", 1.0), Account(1, "b", 3.0), Account(1, "idle", 1.0)]
    window = seconds([1.0] * JAIN_WINDOW_S)
    for each in window:
        each.backlogged = frozenset({0, 1})
        each.accounts = {0: 5.0, 1: 15.0, 2: 400.0}
    assert jain_index(window, accounts).mean == pytest.approx(1.0)
    for each in window:
        each.accounts = {0: 5.0}
    assert jain_index(window, accounts).mean == pytest.approx(0.5)
    window[3].backlogged = frozenset({1})
    assert jain_index(window, accounts).mean is None, "not backlogged together all through"
