"""Does the planner keep the guarantees on an engine that makes its steps?"""

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.budget import MIN_TOKENS
from headway.core.cost import Prices
from headway.core.tier import Tiers
from headway.vllm_plugin.settings import Settings, read_settings
from tests.vllm_plugin.double import BLOCKED, BULK, CRITICAL, NORMAL, READY, FakeVllm

NO_RESERVE = read_settings(
    {"headway": {"tiers": {"critical": {"reserve": 0}, "normal": {"reserve": 0}}}}
)


def flooded(**changes: object) -> FakeVllm:
    """An engine whose slots bulk holds, with more of it waiting."""
    engine = FakeVllm(settings=NO_RESERVE, **changes)  # type: ignore[arg-type]  # of the double
    for index in range(8):
        engine.add(f"b{index}", BULK, max_tokens=100)
    for _ in range(4):
        engine.step()
    assert len(engine.running) == engine.max_num_seqs
    return engine


def test_the_more_urgent_go_first() -> None:
    engine = FakeVllm(max_num_seqs=1, settings=NO_RESERVE)
    engine.add("bulk", BULK)
    engine.add("normal", NORMAL)
    engine.add("critical", CRITICAL)
    engine.run()
    assert engine.finished == ["critical", "normal", "bulk"]


def test_critical_is_in_the_next_step_though_all_slots_are_taken() -> None:
    """G2; vLLM's own priority waits for a slot."""
    engine = flooded()
    engine.add("critical", CRITICAL)
    assert engine.step()["critical"] > 0
    assert len(engine.preempted) == 1


def test_a_step_under_way_delays_the_preemption_by_one() -> None:
    """G2, with asynchronous scheduling; the double refuses a victim that a step writes."""
    engine = flooded(depth=2)
    engine.add("critical", CRITICAL)
    assert "critical" not in engine.step()
    assert engine.preempted == []
    assert engine.step()["critical"] > 0
    assert len(engine.preempted) == 1


@pytest.mark.parametrize("max_num_seqs", [1, 4])
def test_a_step_under_way_delays_by_one_where_all_must_leave(max_num_seqs: int) -> None:
    """G2: nobody else is there whose step could be computed meanwhile."""
    engine = FakeVllm(depth=2, settings=NO_RESERVE, num_blocks=26, max_num_seqs=max_num_seqs)
    for index in range(min(2, max_num_seqs)):
        engine.add(f"b{index}", BULK, prompt=32, max_tokens=30)
    for _ in range(6):
        engine.step()
    assert len(engine.running) == min(2, max_num_seqs)
    engine.add("critical", CRITICAL, prompt=90)
    assert engine.step() == {}
    assert engine.step()["critical"] > 0
    assert len(engine.preempted) == min(2, max_num_seqs)
    engine.run()
    assert engine.finished[0] == "critical"


def test_critical_takes_blocks() -> None:
    engine = FakeVllm(num_blocks=30, settings=NO_RESERVE)
    for index in range(4):
        engine.add(f"b{index}", BULK, prompt=16, max_tokens=100)
    while engine.memory.num_available > 5:
        engine.step()
    engine.add("critical", CRITICAL, prompt=24)
    while "critical" in engine.requests and not engine.requests["critical"].num_blocks:
        engine.step()
    assert engine.preempted
    engine.run()
    assert engine.finished[0] == "critical"


def test_nobody_is_preempted_for_an_equal() -> None:
    """G4."""
    engine = flooded()
    engine.add("late", BULK)
    engine.step()
    assert engine.preempted == []


def crowded() -> FakeVllm:
    """An engine that runs 30 of bulk, which came one after the other, and one of critical."""
    engine = FakeVllm(
        max_num_seqs=40, max_num_batched_tokens=64, num_blocks=2000, settings=NO_RESERVE
    )
    for index in range(30):
        engine.add(f"b{index:02}", BULK, max_tokens=240)
        for _ in range(3):
            engine.step()
    engine.add("critical", CRITICAL, max_tokens=100)
    for _ in range(8):
        engine.step()
    return engine


def test_little_time_parks_bulk_in_rotation() -> None:
    """Everybody of the tier has had a turn before anybody has the second."""
    engine = crowded()
    bulk = {f"b{index:02}" for index in range(30)}
    turns = [set(engine.step()) - {"critical"} for _ in range(20)]
    assert engine.preempted == []
    assert all(MIN_TOKENS - 1 <= len(turn) < 30 for turn in turns), "nobody was parked"
    for name in bulk:
        own = [index for index, turn in enumerate(turns) if name in turn]
        assert len(own) > 1
        for first, second in pairwise(own):
            assert set().union(*turns[first : second + 1]) == bulk, f"{name} was before others"


def test_parked_requests_are_counted() -> None:
    engine = crowded()
    report = engine.planner.report(engine.running)
    assert report["headway:parked_turns:bulk"] > 0
    assert report["headway:num_requests_running:bulk"] == 30
    assert report["headway:admissions:critical"] == 1
    assert report["headway:step_budget_seconds:"] > 0


def test_tokens_computed_again_are_counted() -> None:
    engine = flooded()
    computed = {request.request_id: request.num_computed_tokens for request in engine.running}
    engine.add("critical", CRITICAL)
    engine.step()
    (victim,) = engine.preempted
    engine.run()
    report = engine.planner.report(engine.running)
    assert report["headway:recomputed_tokens:bulk"] >= computed[victim] > 0


def test_a_floor_is_served_under_a_flood_of_critical_work() -> None:
    """G1: bulk has its 5 % while critical has always more work."""
    engine = FakeVllm(max_num_seqs=4, settings=NO_RESERVE)
    for index in range(20):
        engine.add(f"b{index}", BULK, prompt=16, max_tokens=16)
    for index in range(300):
        engine.add(f"c{index}", CRITICAL, prompt=16, max_tokens=16)
    prices = Prices()
    served = {"b": 0.0, "c": 0.0}
    bound = 4 * prices.decode * engine.max_num_batched_tokens
    for _ in range(400):
        for name, num_tokens in engine.step().items():
            price = prices.decode if num_tokens == 1 else prices.prefill * num_tokens
            served[name[0]] += price
        assert served["b"] >= 0.05 * sum(served.values()) - bound
    assert served["b"] > 2 * bound / 3, "bulk starves"
    assert served["c"] > 10 * served["b"]


def test_tenants_of_a_tier_share_by_weight() -> None:
    """G3: a tenant with four times the requests gets no more, one with twice the weight twice."""
    engine = FakeVllm(max_num_seqs=4, settings=NO_RESERVE)
    for index in range(160):
        engine.add(f"a{index}", BULK, tenant="a", weight=1.0)
    for index in range(80):
        engine.add(f"b{index}", BULK, tenant="b", weight=2.0)
    served = {"a": 0, "b": 0}
    while len(engine.finished) < 90:
        for name, num_tokens in engine.step().items():
            served[name[0]] += num_tokens
    assert served["b"] / served["a"] == pytest.approx(2.0, rel=0.15)


def test_deadlines_order_requests_of_a_tenant() -> None:
    engine = FakeVllm(max_num_seqs=1, settings=NO_RESERVE)
    engine.add("late", BULK, tenant="a")
    engine.add("soon", BULK, tenant="a", deadline_s=5.0)
    engine.run()
    assert engine.finished == ["soon", "late"]


def test_a_long_prompt_is_chunked_so_that_critical_tokens_come_in_time() -> None:
    """Once steps are timed, none is planned longer than critical's gap allows."""
    engine = FakeVllm(max_num_batched_tokens=128, num_blocks=400, settings=NO_RESERVE)
    engine.add("critical", CRITICAL, max_tokens=60)
    engine.step()
    engine.add("long", BULK, prompt=200, max_tokens=2)
    plan = engine.plan()
    assert plan.budget_s < inf
    predicted_s = engine.planner.predictor.predict(plan.features)
    assert predicted_s <= max(plan.budget_s, engine.planner.limits.min_step_s) * 1.001
    chunks = [engine.step().get("long", 0) for _ in range(60)]
    assert max(chunks) < 200


def test_those_that_vllm_holds_back_wait_aside() -> None:
    engine = FakeVllm()
    request = engine.add("grammar", CRITICAL, status=BLOCKED)
    engine.add("bulk", BULK)
    assert len(engine.waiting) == 2
    assert "grammar" not in engine.step()
    request.status = READY
    assert "grammar" in engine.step()
    engine.run()


def test_an_abort_leaves_nothing_behind() -> None:
    engine = flooded()
    for name in list(engine.requests):
        engine.abort(name)
    assert len(engine.waiting) == 0
    assert engine.memory.num_available == engine.num_blocks
    engine.planner.check_integrity()


arrivals = st.lists(
    st.tuples(
        st.sampled_from((CRITICAL, NORMAL, BULK)),
        st.integers(1, 60),
        st.integers(1, 20),
        st.sampled_from("ab"),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=25,
)


@given(arrivals, st.sampled_from((1, 2)), st.sampled_from((25, 200)))
def test_everybody_finishes(
    requests: list[tuple[int, int, int, str, int, bool]], depth: int, num_blocks: int
) -> None:
    """G4, G6, G7, whatever arrives and leaves; the double checks each step."""
    engine = FakeVllm(depth=depth, num_blocks=num_blocks)
    expected = []
    for index, (priority, prompt, max_tokens, tenant, steps, leaves) in enumerate(requests):
        engine.add(f"r{index}", priority, prompt, max_tokens, tenant=tenant)
        for _ in range(steps):
            engine.step()
        if leaves and f"r{index}" in engine.requests:
            engine.abort(f"r{index}")
        else:
            expected.append(f"r{index}")
    engine.run(5000)
    assert sorted(engine.finished) == sorted(expected)
    assert engine.memory.num_available == num_blocks


def test_settings_of_the_engine_reach_the_plan() -> None:
    settings = Settings(tiers=Tiers(), max_preemptions=1)
    engine = FakeVllm(settings=settings, max_num_seqs=20)
    assert engine.planner.limits.tiers[0].reserved_slots == 2
    assert engine.planner.limits.tiers[2].floor == 0.05
