"""Does a shipped scenario show what it says, shortened to seconds, and not without headway?

The whole scenarios, with several seeds and in figures, are `bench/simulated_claims.py`'s.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from math import inf
from statistics import fmean

import pytest

from headway.core.tier_books import FLOOR_QUANTUM
from headway.sim.measures import RunReport
from headway.sim.run import simulate
from headway.sim.scenario_file import find_scenario, load_scenario, shipped_names

TTFT_S = 0.5
"""The default target of critical."""
STEP = 2048
"""Tokens of a full step."""
CRITICAL, NORMAL, BULK = range(3)

SHORT: Mapping[str, Mapping[str, object]] = {
    "adversarial": {"duration_s": 40, "warmup_s": 5},
    "bulk-flood": {"duration_s": 25, "warmup_s": 5, "streams.bulk.arrivals.count": 2000},
    "burst-6x": {
        "duration_s": 60,
        "warmup_s": 5,
        "drain_s": 10,
        "nodes.count": 1,
        "streams.code.arrivals.rates": [[0, 0.6], [20, 3.6], [35, 0.6]],
        "streams.chat.arrivals.rate": 1,
        "streams.batch.arrivals.count": 1000,
    },
    "cpu-flood": {},
    "diurnal-week": {
        "duration_s": 80,
        "warmup_s": 5,
        "drain_s": 5,
        "streams.support.arrivals.day_s": 40,
        "streams.tools.arrivals.day_s": 40,
        "streams.batch.arrivals.count": 2000,
    },
    "floors": {
        "duration_s": 60,
        "warmup_s": 10,
        "streams.critical.arrivals.callers": 100,
        "streams.normal.arrivals.callers": 60,
        "streams.bulk.arrivals.count": 2000,
    },
    "large-request": {"duration_s": 60, "streams.document.start_s": 12},
    "long-prompt-hol": {"duration_s": 60, "warmup_s": 5},
    "node-failure": {
        "duration_s": 40,
        "warmup_s": 5,
        "streams.batch.arrivals.callers": 100,
        "events": [{"kind": "node-down", "node": 0, "at_s": 15, "until_s": 25}],
    },
    "noisy-neighbour-requests": {"duration_s": 60, "warmup_s": 10, "streams.noisy.start_s": 10},
    "noisy-neighbour-tokens": {"duration_s": 60, "warmup_s": 10, "streams.noisy.start_s": 10},
    "weights-1-2-3-4": {"duration_s": 150, "warmup_s": 60, "nodes.max_num_seqs": 32},
}
ELSEWHERE = {
    "agents-shared-prefix": "tests/kv/test_cache_stateful.py, tests/engine/test_metamorphic.py",
    "fleet": "docs/results.md: a thousand requests a second are not for a test",
    "qoserve-tiers": "bench/simulated_claims.py: goodput is a search over loads",
    "tenants": "bench/simulated_claims.py: its tenants are those of a trace",
    "three-tiers": "bench/simulated_claims.py: goodput is a search over loads",
}
"""Where the others show it."""


@cache
def run(name: str, policy: str = "headway", *more: tuple[str, object]) -> RunReport:
    """Run a shortened scenario, with `more` settings."""
    settings = {**SHORT[name], **dict(more)}
    return simulate(load_scenario(find_scenario(name), settings), policy, seed=0)


def ttft_s(report: RunReport) -> float:
    """Return critical's 99th percentile; infinite when nobody got a token."""
    p99 = report.tiers[CRITICAL].ttft_s.p99
    return inf if p99 is None else p99


def attained(report: RunReport, rank: int) -> float:
    """Return the share of a tier's requests that ended within all targets."""
    return report.tiers[rank].attainment or 0.0


def test_every_scenario_shows_it_here_or_elsewhere() -> None:
    assert sorted([*SHORT, *ELSEWHERE]) == sorted(shipped_names())


def test_bulk_flood_does_not_show_in_criticals_latency_and_fills_what_is_left() -> None:
    flood = run("bulk-flood")
    twice = run("bulk-flood", "headway", ("streams.bulk.arrivals.count", 4000))
    assert ttft_s(flood) == pytest.approx(ttft_s(twice), rel=0.01)
    assert ttft_s(flood) <= TTFT_S < ttft_s(run("bulk-flood", "vllm-priority"))
    fcfs = run("bulk-flood", "fcfs")
    assert fcfs.tiers[CRITICAL].num_completed == 0
    assert flood.service_per_s > 0.7 * fcfs.service_per_s


@pytest.mark.parametrize(("rank", "floor"), [(NORMAL, 0.15), (BULK, 0.05)])
def test_floors_are_kept_in_every_half_minute_beside_endless_critical_work(
    rank: int, floor: float
) -> None:
    """The bound is that of G1 in the engine; without floors a tier gets nothing at all."""
    report, strict = run("floors"), run("floors", "strict")
    bound = FLOOR_QUANTUM * STEP + 2 * STEP * floor + 2
    least = report.tiers[rank].least_share_30s
    assert least is not None
    assert least >= floor - bound / (30 * report.service_per_s)
    assert strict.tiers[rank].least_share_30s == 0.0


@pytest.mark.parametrize("name", ["noisy-neighbour-requests", "noisy-neighbour-tokens"])
def test_noisy_neighbours_take_nothing_from_those_who_want_less_than_their_share(name: str) -> None:
    """By the service that these get, over what they get with no noise; not so by arrival."""

    def kept(policy: str) -> float:
        noisy = run(name, policy)
        quiet = run(name, policy, ("streams.noisy.arrivals.rate", 0.001))
        steady, alone = (
            each.service_per_s
            * sum(t.service_share for t in each.tenants if t.tenant.startswith("steady"))
            for each in (noisy, quiet)
        )
        return steady / alone

    assert kept("headway") > 0.9
    assert kept("fcfs") < 0.75


def test_weights_are_followed_in_service() -> None:
    def furthest_off(policy: str) -> float:
        tenants = run("weights-1-2-3-4", policy).tenants
        return max(abs(each.service_share / (each.weight / 10) - 1) for each in tenants)

    assert furthest_off("headway") < 0.05
    assert furthest_off("fcfs") > 0.5


def test_b8_after_a_burst_critical_is_on_time_and_bulk_gets_back_what_it_gave() -> None:
    """Of those that come in the burst some are late; of those five seconds after it nobody is."""
    ends_s, target_s = 35, 2.0
    critical, _, bulk = run("burst-6x").course
    assert max(late or 0.0 for late in critical.ttft_p99_s[20:ends_s]) > target_s
    after = [late for late in critical.ttft_p99_s[ends_s + 5 :] if late is not None]
    assert len(after) >= 5
    assert max(after) <= target_s
    before, during = fmean(bulk.tokens_per_s[5:20]), fmean(bulk.tokens_per_s[22:ends_s])
    assert during < before / 2
    assert fmean(bulk.tokens_per_s[50:60]) > before
    assert run("burst-6x", "fcfs").tiers[CRITICAL].num_completed == 0


def test_of_a_lost_node_only_its_streams_fail_and_critical_is_on_time_elsewhere() -> None:
    report = run("node-failure")
    for tier in report.tiers:
        assert tier.outcomes.keys() == {"completed", "failed-node"}
        assert 0 < tier.outcomes["failed-node"] <= 64, "more than a quarter of what four nodes run"
    critical = report.tiers[CRITICAL]
    on_time = attained(report, CRITICAL) * critical.num_submitted
    assert on_time >= 0.99 * critical.num_completed
    assert attained(run("node-failure", "fcfs"), CRITICAL) < 0.7


def test_critical_leaves_a_node_that_has_become_slow() -> None:
    """Whoever is there already, and whoever it still gets, begins nearly in time; 17 s before."""
    slow = {"kind": "node-slow", "node": 1, "at_s": 10, "until_s": 35, "factor": 3.0}
    settings = {"duration_s": 40, "warmup_s": 5, "events": [slow]}
    scenario = load_scenario(find_scenario("node-failure"), settings)
    critical = simulate(scenario, "headway", seed=0).tiers[CRITICAL]
    assert critical.ttft_s.p99 is not None
    assert critical.ttft_s.p99 <= 2 * TTFT_S
    assert critical.gap_s.p99 is not None
    assert critical.gap_s.p99 <= 0.2


def test_documents_do_not_make_the_short_ones_behind_them_wait() -> None:
    assert ttft_s(run("long-prompt-hol")) <= TTFT_S
    assert ttft_s(run("long-prompt-hol", "fcfs")) > 5
    assert ttft_s(run("long-prompt-hol", "sarathi")) > 5


def test_bulk_fills_the_nights_and_gives_way_by_day() -> None:
    def by_day_over_night(policy: str) -> float:
        critical, _, bulk = run("diurnal-week", policy).course
        seconds = sorted(range(5, 80), key=critical.tokens_per_s.__getitem__)
        night, day = seconds[:25], seconds[-25:]
        by_day, by_night = (fmean(bulk.tokens_per_s[s] for s in part) for part in (day, night))
        return by_day / by_night

    assert ttft_s(run("diurnal-week")) <= TTFT_S
    assert by_day_over_night("headway") < 0.6


def test_one_request_that_needs_nearly_all_blocks_keeps_critical_from_none() -> None:
    with_it = run("large-request")
    ordinary = run("large-request", "headway", ("streams.document.prompt_tokens", 400))
    assert ttft_s(with_it) <= 1.1 * ttft_s(ordinary) <= TTFT_S
    assert attained(with_it, CRITICAL) >= attained(ordinary, CRITICAL) - 0.01
    assert attained(run("large-request", "fcfs"), CRITICAL) < 0.1


def test_priority_of_vllm_helps_critical_which_still_waits_for_a_slot() -> None:
    ours, priority, fcfs = (
        run("cpu-flood", policy).tiers[CRITICAL].ttft_s.p50 or inf
        for policy in ("headway", "vllm-priority", "fcfs")
    )
    assert ours <= TTFT_S < priority < fcfs / 5


def test_whatever_some_clients_do_everybody_is_served_and_critical_on_time() -> None:
    report = run("adversarial")
    completed: Counter[str] = Counter()
    for each in report.tenants:
        completed[each.tenant.split("-")[0]] += each.num_completed
    assert len(completed) == 6
    assert min(completed.values()) > 0
    assert ttft_s(report) <= TTFT_S
    assert ttft_s(run("adversarial", "fcfs")) > 5
