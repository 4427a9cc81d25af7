"""Which changes of the input must not change the engine's plans, and which only make them better?

M2, M3, M4, M7, M8, M12, M14 and M15 of `algorithms.md` §4, and G10. Weights are powers of two, so
that equal means equal.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import mean

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.predictor import StepCoefficients
from headway.core.step import TierLimits
from tests.engine.drive import Drive, Machine

TENANTS = "abcd"
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0}
TIERS = (TierLimits(reserved_slots=1, preemptible=False), TierLimits(0.15), TierLimits(0.05))
MACHINE = Machine(StepCoefficients(base_s=0.015, token_s=1e-4, decode_context_s=1e-7))
MAX_STEPS = 5000


@dataclass(frozen=True)
class Wanted:
    """A request that comes before a step, and maybe leaves before another one."""

    at: int
    rank: int
    tenant: str
    size: int
    length: int
    first_token: int = 1
    cancel_at: int | None = None


@st.composite
def loads(draw: st.DrawFn, max_rank: int = 2) -> list[Wanted]:
    """Draw up to 20 requests that fit into the small pool of `plans`, with some that leave."""
    shapes = draw(
        st.lists(
            st.tuples(
                st.integers(0, 12),
                st.integers(0, max_rank),
                st.sampled_from(TENANTS),
                st.integers(1, 80),
                st.integers(1, 20),
                st.integers(1, 2),
                st.none() | st.integers(1, 12),
            ),
            max_size=20,
        )
    )
    return [
        Wanted(at, rank, tenant, size, length, first, None if stay is None else at + stay)
        for at, rank, tenant, size, length, first, stay in shapes
    ]


def plans(
    load: list[Wanted],
    *,
    weights: Mapping[str, float] = WEIGHTS,
    tiers: tuple[TierLimits, ...] = TIERS,
    start: float = 0.0,
    num_blocks: int = 16,
    caching: bool = True,
) -> tuple[list[str], Drive]:
    """Play the load to its end. Returns each plan as text, and what it was played on."""
    drive = Drive(
        tiers, num_blocks=num_blocks, slots=4, budget=16, machine=MACHINE, caching=caching
    )
    drive.now = start
    names: dict[int, str] = {}
    log = []
    for number in range(MAX_STEPS):
        for index, one in enumerate(load):
            if one.at == number:
                sequence = drive.add(
                    one.rank,
                    one.size,
                    one.length,
                    one.tenant,
                    weights[one.tenant],
                    first_token=one.first_token,
                )
                names[index] = sequence.request.request_id
            if one.cancel_at == number:
                drive.scheduler.abort(names[index])
        if drive.scheduler.has_unfinished:
            log.append(repr(drive.step().plan))
        elif all(one.at <= number for one in load):
            return log, drive
    raise AssertionError("G4: it does not end")


@settings(max_examples=40)
@given(loads(), st.integers(-4, 8))
def test_m2_scaling_all_weights_changes_nothing(load: list[Wanted], power: int) -> None:
    scaled = {tenant: weight * 2.0**power for tenant, weight in WEIGHTS.items()}
    assert plans(load, weights=scaled)[0] == plans(load)[0]


@settings(max_examples=40)
@given(loads(), st.permutations(TENANTS))
def test_m3_names_of_tenants_change_nothing(load: list[Wanted], names: list[str]) -> None:
    new = dict(zip(TENANTS, names, strict=True))
    renamed = [replace(one, tenant=new[one.tenant]) for one in load]
    weights = {new[tenant]: weight for tenant, weight in WEIGHTS.items()}
    assert plans(renamed, weights=weights)[0] == plans(load)[0]


@settings(max_examples=40)
@given(loads(), st.integers(1, 1 << 20))
def test_m4_shifting_time_changes_no_plan(load: list[Wanted], shift: int) -> None:
    assert plans(load, start=float(shift))[0] == plans(load)[0]


@settings(max_examples=40)
@given(loads(max_rank=1))
def test_m7_an_idle_tier_changes_nothing(load: list[Wanted]) -> None:
    assert plans(load, tiers=TIERS[:2])[0] == plans(load)[0]


def test_m8_a_request_cancelled_while_it_waits_is_as_if_it_had_never_come() -> None:
    """Its tenant has others waiting, so that nobody is lifted because of it."""
    standing = [Wanted(0, 1, tenant, 60, 12) for tenant in TENANTS for _ in range(6)]
    passing = [Wanted(3, 1, tenant, 70, 5, cancel_at=4) for tenant in TENANTS]
    with_passing, without = plans([*standing, *passing])[0], plans(standing)[0]
    pairs = zip(with_passing, without, strict=True)
    assert sum(one != other for one, other in pairs) <= 1, (
        "only the step that saw them wait differs"
    )


@settings(max_examples=40)
@given(loads())
def test_m12_the_prefix_cache_spares_work_and_adds_none(load: list[Wanted]) -> None:
    """With blocks for all, so that who is admitted when does not hang on what is cached."""
    staying = [replace(one, cancel_at=None) for one in load]
    cached = plans(staying, num_blocks=1024)[1]
    plain = plans(staying, num_blocks=1024, caching=False)[1]
    assert sorted(name for _, name in cached.emitted) == sorted(name for _, name in plain.emitted)
    assert cached.by_tenant.total() <= plain.by_tenant.total()


def test_g11_what_another_tenant_cached_shows_in_no_plan() -> None:
    """Neither in counts nor in time: b's prompt is a's, or is not, and all b sees is the same."""

    def seen_by_b(first_token: int) -> list[str]:
        before = [Wanted(0, 1, "a", 64, 4, first_token=1)]
        asked = [Wanted(20 + n, 1, "b", 64 + n, 4, first_token=first_token) for n in range(6)]
        return plans([*before, *asked], num_blocks=64)[0]

    assert seen_by_b(1) == seen_by_b(2)
    own = [Wanted(0, 1, "b", 64, 4), Wanted(20, 1, "b", 64, 4)]
    other = [Wanted(0, 1, "a", 64, 4), Wanted(20, 1, "b", 64, 4)]
    assert plans(own, num_blocks=64)[0] != plans(other, num_blocks=64)[0], "its own does show"


def random_load(seed: int) -> list[Wanted]:
    """Return 60 requests, more than the pool takes, some of which leave."""
    random = Random(seed)
    return [
        Wanted(
            at=(at := random.randrange(60)),
            rank=random.randrange(3),
            tenant=random.choice(TENANTS),
            size=random.randrange(1, 90),
            length=random.randrange(1, 40),
            first_token=random.randrange(1, 3),
            cancel_at=at + random.randrange(1, 30) if random.random() < 0.2 else None,
        )
        for _ in range(60)
    ]


def test_m14_more_blocks_never_take_longer_on_average() -> None:
    """Over seeds and with 2 % to spare: a single schedule may well do worse (Graham)."""
    ends = {
        num_blocks: mean(
            plans(random_load(seed), num_blocks=num_blocks)[1].now for seed in range(8)
        )
        for num_blocks in (12, 24, 48)
    }
    assert ends[24] <= ends[12] * 1.02
    assert ends[48] <= ends[24] * 1.02
    assert ends[48] < ends[12]


REPLAY = """
from tests.engine.test_metamorphic import plans, random_load
for line in plans(random_load(7))[0]:
    print(line)
"""


def test_g10_m15_a_replay_gives_the_same_plans_byte_for_byte() -> None:
    """G10, engine side: in fresh processes, whatever the seed of Python's hashes."""
    logs = [
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert logs[0] == logs[1]
    assert logs[0].splitlines() == plans(random_load(7))[0]
    drive = plans(random_load(7))[1]
    assert drive.stats.num_preemptions > 0
    assert drive.stats.num_parked > 0
