"""Does vLLM's scheduler, wrapped, keep the guarantees with its own KV cache?"""

import random
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from headway.vllm_plugin.compat import IncompatibleError
from headway.vllm_plugin.settings import Settings
from tests_vllm.engine import BLOCK_SIZE, BULK, CRITICAL, NORMAL, Engine
from tests_vllm.flood import TimedScheduler, VirtualTime, step_s

NO_RESERVE = {"tiers": {"critical": {"reserve": 0}, "normal": {"reserve": 0}}}


def finished_order(engine: Engine) -> list[str]:
    """Run to the end; return who finished, first to last."""
    order: list[str] = []
    names = list(engine.outputs)
    while engine.scheduler.has_requests():
        engine.step()
        engine.check()
        order += [n for n in names if n not in engine.scheduler.requests and n not in order]
    return order


def flooded(model: str, **changes: object) -> Engine:
    """An engine whose four slots bulk holds, with more of it waiting."""
    engine = Engine(model, max_num_seqs=4, settings=NO_RESERVE, **changes)  # type: ignore[arg-type]
    for index in range(8):
        engine.add(f"b{index}", BULK, max_tokens=100)
    for _ in range(5):
        engine.step()
    assert len(engine.running) == 4
    return engine


def preemptions(engine: Engine) -> int:
    return sum(request.num_preemptions for request in engine.scheduler.requests.values())


def test_stock_priority_does_not_preempt_for_a_slot(model: str) -> None:
    """The negative control: what the plugin is for."""
    engine = flooded(model, cls=Scheduler)
    engine.add("critical", CRITICAL)
    for _ in range(5):
        assert "critical" not in engine.step()


@pytest.mark.parametrize("caching", [True, False])
def test_critical_takes_a_slot_at_once(model: str, caching: bool) -> None:
    engine = flooded(model, caching=caching)
    engine.add("critical", CRITICAL)
    assert engine.step()["critical"] > 0
    assert preemptions(engine) == 1
    assert finished_order(engine)[0] == "critical"


def test_a_step_under_way_is_waited_for(model: str) -> None:
    """With asynchronous scheduling the victim first sits out: no step writes it when it goes."""
    engine = flooded(model, depth=2)
    in_flight = {r.request_id: r.num_in_flight_tokens for r in engine.scheduler.running}
    assert all(in_flight.values())
    engine.add("critical", CRITICAL)
    assert "critical" not in engine.step()
    assert preemptions(engine) == 0
    assert engine.step()["critical"] > 0
    assert preemptions(engine) == 1
    engine.run()
    assert all(len(tokens) == 100 for name, tokens in engine.outputs.items() if name[0] == "b")


@pytest.mark.parametrize("caching", [True, False])
def test_critical_takes_blocks(model: str, caching: bool) -> None:
    engine = Engine(model, num_blocks=26, caching=caching, settings=NO_RESERVE)
    for index in range(4):
        engine.add(f"b{index}", BULK, prompt=60, max_tokens=60)
    for _ in range(25):
        engine.step()
    engine.add("critical", CRITICAL, prompt=150)
    for _ in range(3):
        engine.step()
        engine.check()
    assert "critical" in engine.running
    assert preemptions(engine) >= 1
    order = finished_order(engine)
    assert order[0] == "critical"
    assert all(len(tokens) == 60 for name, tokens in engine.outputs.items() if name[0] == "b")


def test_order_across_tiers_and_tenants(model: str) -> None:
    engine = Engine(model, max_num_seqs=1, settings=NO_RESERVE)
    for index in range(3):
        engine.add(f"a{index}", BULK, tenant="a")
    engine.add("b0", BULK, tenant="b")
    engine.add("normal", NORMAL)
    engine.add("critical", CRITICAL)
    order = finished_order(engine)
    assert order[:2] == ["critical", "normal"]
    assert order.index("b0") <= 3, "a tenant with one request waits for one with three"


def test_tenants_share_by_weight(model: str) -> None:
    engine = Engine(model, max_num_seqs=4, settings=NO_RESERVE)
    for index in range(80):
        engine.add(f"a{index}", BULK, tenant="a")
    for index in range(60):
        engine.add(f"b{index}", BULK, tenant="b", weight=2.0)
    served = {"a": 0, "b": 0}
    while len(engine.scheduler.requests) > 70:
        for name, num_tokens in engine.step().items():
            served[name[0]] += num_tokens
    assert served["b"] / served["a"] == pytest.approx(2.0, rel=0.15)


def test_floors_are_served_under_a_flood(model: str) -> None:
    engine = Engine(model, max_num_seqs=4, settings=NO_RESERVE)
    for index in range(10):
        engine.add(f"b{index}", BULK)
    for index in range(150):
        engine.add(f"c{index}", CRITICAL)
    served = {"b": 0, "c": 0}
    while any(name[0] == "c" for name in engine.scheduler.requests):
        for name, num_tokens in engine.step().items():
            served[name[0]] += num_tokens if num_tokens > 1 else 2
        if not any(name[0] == "b" for name in engine.scheduler.requests):
            break
        assert served["b"] >= 0.05 * sum(served.values()) - 400
    assert served["b"] > 100


def test_bulk_is_parked_with_its_blocks_kept(model: str) -> None:
    engine = Engine(model, max_num_seqs=32, num_blocks=1000, settings=NO_RESERVE)
    for index in range(30):
        engine.add(f"b{index}", BULK, max_tokens=60)
    for _ in range(20):
        engine.step()
    engine.add("critical", CRITICAL, prompt=60, max_tokens=20)
    scheduled = engine.step()
    assert scheduled["critical"] > 0
    assert len(engine.running) > len(scheduled), "nobody is parked"
    assert preemptions(engine) == 0
    engine.run()
    assert all(len(tokens) == 60 for name, tokens in engine.outputs.items() if name[0] == "b")


@pytest.mark.parametrize("cls", [Scheduler, TimedScheduler], ids=["stock", "ours"])
def test_a_long_prompt_is_cut_to_what_critical_can_wait(model: str, cls: Any) -> None:
    """In virtual time; the control is stock, which fills the step and with it the gap."""
    promised_s = Settings().tiers.by_rank(0).target.gap_s
    assert promised_s is not None
    VirtualTime.now = 0.0
    engine = Engine(model, cls=cls, max_num_batched_tokens=512)
    gaps: list[float] = []

    def take(output: Any) -> None:
        gaps.append(step_s(output))
        VirtualTime.now += gaps[-1]

    engine.add("critical", CRITICAL, max_tokens=60)
    for _ in range(10):
        engine.step(take)
    engine.add("long", BULK, prompt=900)
    chunks = [engine.step(take).get("long", 0) for _ in range(15)]
    assert sum(chunks) > 900
    assert "critical" in engine.running, "nobody was made to wait, so nothing is shown"
    if cls is Scheduler:
        assert chunks[:2] == [511, 389]
        assert max(gaps) > 2 * promised_s
    else:
        assert max(gaps) < promised_s


def test_what_is_cached_is_not_computed_again(model: str) -> None:
    engine = Engine(model, settings=NO_RESERVE)
    prompt = list(range(2000, 2300))

    def computed(name: str) -> int:
        engine.add(name, BULK, prompt=prompt)
        num_tokens = 0
        while engine.scheduler.requests:
            num_tokens += sum(engine.step().values())
        return num_tokens

    assert computed("first") == 300 + 7
    assert computed("again") == 300 % BLOCK_SIZE + 7


def test_an_abort_anywhere_leaves_nothing(model: str) -> None:
    engine = flooded(model, depth=2)
    engine.add("critical", CRITICAL)
    engine.step()
    for name in list(engine.scheduler.requests):
        engine.abort(name)
    engine.run()
    assert len(engine.scheduler.waiting) == 0
    assert engine.running == []


def test_siblings_of_one_request_share_the_prompt(model: str) -> None:
    """n > 1 is several requests of one prompt to vLLM's scheduler."""
    engine = Engine(model, settings=NO_RESERVE)
    prompt = list(range(3000, 3064))
    for index in range(3):
        engine.add(f"{index}_parent", NORMAL, prompt=prompt)
    tokens = 0
    while engine.scheduler.requests:
        tokens += sum(engine.step().values())
        engine.check()
    assert tokens < 64 + 2 * 32 + 3 * 8
    assert len({tuple(tokens) for tokens in engine.outputs.values()}) == 1


def test_a_pause_plans_nothing(model: str) -> None:
    from vllm.v1.core.sched.interface import PauseState

    engine = flooded(model)
    engine.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    engine.add("critical", CRITICAL)
    assert set(engine.step()) == set(engine.running)
    engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert engine.step() == {}
    engine.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert engine.step()["critical"] > 0
    engine.run()


def test_fcfs_is_refused(model: str) -> None:
    with pytest.raises(IncompatibleError, match="--scheduling-policy priority"):
        Engine(model, policy="fcfs")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("num_blocks", [200, 24])
def test_whatever_arrives_and_leaves_everybody_finishes(
    model: str, depth: int, caching: bool, num_blocks: int
) -> None:
    """Random arrivals and aborts; vLLM's own checks and ours after every step."""
    rng = random.Random(depth * 1000 + num_blocks)
    engine = Engine(model, max_num_seqs=4, depth=depth, caching=caching, num_blocks=num_blocks)
    lengths: dict[str, int] = {}
    for step in range(250):
        if rng.random() < 0.4:
            name = f"r{step}"
            lengths[name] = rng.randrange(1, 40)
            shared = list(range(rng.choice([0, 16, 48])))
            own = [rng.randrange(5000, 9000) for _ in range(rng.randrange(1, 120))]
            engine.add(
                name,
                rng.choice([CRITICAL, NORMAL, BULK, BULK]),
                prompt=shared + own,
                max_tokens=lengths[name],
                tenant=rng.choice("ab"),
            )
        if lengths and rng.random() < 0.05:
            name = rng.choice(list(lengths))
            del lengths[name]
            engine.abort(name)
        engine.step()
        engine.check()
    engine.run()
    for name, num_tokens in lengths.items():
        assert engine.outputs[name] == list(range(1, num_tokens + 1)), name
