"""Which changes of the input must not change the schedule? (`algorithms.md` §4, M2 to M8, G10.)

Numbers are dyadic, so that equal means equal, not close.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headway.core.backlog import QueuedRequest
from headway.core.fairness import FairQueue
from headway.core.tier import DEFAULT_TIERS, Tiers
from tests.core.scenario import PATIENT, Arrival, Run, play, pop, request

UNNAMED = Tiers(
    tuple(replace(tier, target=replace(tier.target, ttft_s=1e6)) for tier in DEFAULT_TIERS)
)
"""The default tiers without a target to miss: an overloaded tier turns tenants away by name."""
TENANTS = "abcd"
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0}
Curve = list[tuple[int, int]]
"""(All service, one tenant's service), dispatch by dispatch."""


@st.composite
def loads(draw: st.DrawFn, ranks: tuple[int, int] = (0, 2)) -> list[Arrival]:
    """Draw up to 40 requests of several tiers, tenants and costs, over some seconds."""
    shapes = draw(
        st.lists(
            st.tuples(
                st.integers(*ranks),
                st.sampled_from(TENANTS),
                st.integers(1, 32),
                st.integers(0, 64),
                st.none() | st.integers(1, 64),
                st.integers(1, 3),
            ),
            max_size=40,
        )
    )
    return [
        Arrival(
            request(
                f"r{number}",
                rank,
                tenant,
                cost=float(cost),
                weight=WEIGHTS[tenant],
                arrival=at / 4,
            ),
            cancel_at=None if patience is None else (at + patience) / 4,
            cost_actual=float(cost * factor),
        )
        for number, (rank, tenant, cost, at, patience, factor) in enumerate(shapes)
    ]


def changed(load: list[Arrival], change: Callable[[QueuedRequest], QueuedRequest]) -> list[Arrival]:
    """Return the load with each request changed."""
    return [replace(arrival, request=change(arrival.request)) for arrival in load]


def run(load: list[Arrival], tiers: Tiers | None = None) -> Run:
    """Play on two slots that serve 8 cost units a second."""
    return play(load, tiers=Tiers() if tiers is None else tiers, slots=2, speed=8.0)


@given(loads(), st.integers(-4, 8))
def test_m2_scaling_all_weights_changes_nothing(load: list[Arrival], power: int) -> None:
    scaled = changed(load, lambda entry: replace(entry, weight=entry.weight * 2.0**power))
    assert run(scaled).log == run(load).log


@given(loads(), st.permutations(TENANTS))
def test_m3_names_of_tenants_change_nothing(load: list[Arrival], names: list[str]) -> None:
    renaming = dict(zip(TENANTS, names, strict=True))
    renamed = changed(load, lambda entry: replace(entry, tenant=renaming[entry.tenant]))
    assert run(renamed, UNNAMED).log == run(load, UNNAMED).log


@given(loads(), st.integers(1, 1000))
def test_m4_shifting_time_shifts_the_schedule(load: list[Arrival], shift: int) -> None:
    shifted = [
        replace(
            arrival,
            request=replace(arrival.request, arrival=arrival.request.arrival + shift),
            cancel_at=None if arrival.cancel_at is None else arrival.cancel_at + shift,
        )
        for arrival in load
    ]
    assert run(shifted).log == [(at + shift, what, name) for at, what, name in run(load).log]


@given(
    st.lists(st.integers(1, 20), min_size=30, max_size=60),
    st.lists(st.integers(1, 20), min_size=30, max_size=60),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_m5_twice_the_weight_never_brings_less_and_in_the_end_twice_as_much(
    costs_f: list[int], costs_g: list[int], weight: float
) -> None:
    """f's share rises to 2 w / (2 w + 1), within G = c_max of each at all times."""
    single, double = (service_by_weight(costs_f, costs_g, factor * weight) for factor in (1, 2))
    largest = max(*costs_f, *costs_g)
    for curve, w in ((single, weight), (double, 2 * weight)):
        assert all(abs(own - total * w / (w + 1)) <= 2 * largest for total, own in curve)
    # Compared where both had received as much in all, as far as both tenants waited.
    for total in range(0, min(single[-1][0], double[-1][0]) - 2 * largest):
        assert at_total(double, total) >= at_total(single, total) - largest


def service_by_weight(costs_f: list[int], costs_g: list[int], weight: float) -> Curve:
    """Return the curve of f, which has this weight, beside g of weight 1."""
    entries = {f"f-{n}": ("f", cost, weight) for n, cost in enumerate(costs_f)}
    return served(entries | {f"g-{n}": ("g", cost, 1.0) for n, cost in enumerate(costs_g)})


@given(
    st.lists(st.integers(1, 20), min_size=20, max_size=60),
    st.lists(st.integers(1, 20), min_size=20, max_size=60),
)
def test_m6_splitting_a_tenant_with_its_weight_gains_nothing(
    costs_f: list[int], costs_g: list[int]
) -> None:
    """The joint service of the halves differs from the whole's by at most 2 G, G = 4 c_max."""
    whole = joint_service(costs_f, costs_g, halves=False)
    split = joint_service(costs_f, costs_g, halves=True)
    largest = max(*costs_f, *costs_g)
    for total in range(0, sum(costs_f) // 2):
        assert abs(at_total(whole, total) - at_total(split, total)) <= 2 * 4 * largest


def joint_service(costs_f: list[int], costs_g: list[int], *, halves: bool) -> Curve:
    """Return the curve of f, or of its halves, beside g."""
    entries: dict[str, tuple[str, int, float]] = {}
    for number, cost in enumerate(costs_f):
        tenant, weight = (f"f{number % 2}", 0.5) if halves else ("f", 1.0)
        entries[f"f-{number}"] = (tenant, cost, weight)
    return served(entries | {f"g-{n}": ("g", cost, 1.0) for n, cost in enumerate(costs_g)})


def served(entries: dict[str, tuple[str, int, float]]) -> Curve:
    """Return (all service, f's service) after each dispatch while all tenants wait."""
    queue = FairQueue()
    waiting = Counter(tenant for tenant, _, _ in entries.values())
    for number, (name, (tenant, cost, weight)) in enumerate(entries.items()):
        queue.push(name, tenant, weight=weight, cost=cost, key=float(number))
    total, own, curve = 0, 0, [(0, 0)]
    while min(waiting.values()) > 0:
        name = pop(queue) or ""
        queue.charge(*entries[name])
        waiting[entries[name][0]] -= 1
        total += entries[name][1]
        own += entries[name][1] if name.startswith("f") else 0
        curve.append((total, own))
    return curve


def at_total(curve: Curve, total: int) -> int:
    """Return f's service once all service had reached `total`, or at the end of the curve."""
    return next((own for reached, own in curve if reached >= total), curve[-1][1])


@given(loads())
def test_m7_tenants_that_were_there_before_change_nothing(load: list[Arrival]) -> None:
    early = [Arrival(request(f"early{n}", 1, f"gone{n}", cost=float(n + 1))) for n in range(8)]
    later = [
        replace(
            arrival,
            request=replace(arrival.request, arrival=arrival.request.arrival + 64),
            cancel_at=None if arrival.cancel_at is None else arrival.cancel_at + 64,
        )
        for arrival in load
    ]
    log = [line for line in run([*early, *later], PATIENT).log if not line[2].startswith("early")]
    assert log == run(later, PATIENT).log


@given(loads(ranks=(0, 1)))
def test_m7_an_idle_tier_changes_nothing(load: list[Arrival]) -> None:
    assert run(load, Tiers(Tiers().all[:2])).log == run(load).log


@given(loads())
def test_m8_a_cancelled_request_is_as_if_it_had_never_come(load: list[Arrival]) -> None:
    """Exactly so when it was never its tenant's only one: nobody is lifted because of it."""
    standing = [
        Arrival(request(f"{tenant}{rank}-{n}", rank, tenant, cost=4.0, weight=WEIGHTS[tenant]))
        for tenant in TENANTS
        for rank in range(3)
        for n in range(4)
    ]
    horizon = 4.0
    with_cancelled = play([*standing, *load], tiers=PATIENT, slots=2, speed=8.0, until=horizon)
    cancelled = with_cancelled.times("cancel")
    without = [one for one in load if one.request.request_id not in cancelled]
    log = [line for line in with_cancelled.log if line[2] not in cancelled]
    assert play([*standing, *without], tiers=PATIENT, slots=2, speed=8.0, until=horizon).log == log


def test_m8_a_cancelled_request_costs_its_tenant_nothing() -> None:
    queue = FairQueue()
    for number in range(4):
        queue.push(f"a{number}", "a", cost=8.0, key=float(number))
        queue.push(f"b{number}", "b", cost=8.0, key=float(number))
    for number in range(100):
        queue.push(f"x{number}", "a", cost=1000.0, key=9.0)
        assert queue.remove(f"x{number}")
    order = []
    for name in iter(partial(pop, queue), None):
        queue.charge(name[0], 8.0)
        order.append(name)
    assert order == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]


REPLAY = """
from headway.core.tier import Tiers
from tests.core.scenario import Arrival, bounded, play, request
load = [
    Arrival(
        request(
            f"r{n}", n % 3, f"t{n * 7 % 11}", cost=1.0 + n * 37 % 101, arrival=n * 13 % 50 / 10,
            deadline=6.0 + n % 7 if n % 4 == 2 else None,
        ),
        cancel_at=1.0 + n * 29 % 70 / 10 if n % 5 == 0 else None,
        cost_actual=1.0 + n * 53 % 89,
    )
    for n in range(400)
]
for line in play(load, tiers=bounded(Tiers(), max_queued=60), slots=3, speed=200.0).log:
    print(line)
"""


def test_g10_a_replay_gives_the_same_log_byte_for_byte() -> None:
    """G10, gateway side: in fresh processes, whatever the seed of Python's hashes."""
    root = Path(__file__).parents[2]
    logs = [
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert logs[0] == logs[1]
    for what in (b"dispatch", b"cancel", b"shed", b"evict", b"expire", b"finish"):
        assert what in logs[0], f"the scenario never shows {what!r}"
