"""Is nobody planned for whose LoRA adapter has no place, and does everybody get one in time?"""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headway.vllm_plugin.settings import Settings
from tests.vllm_plugin.double import BULK, CRITICAL, NORMAL, FakeVllm
from tests.vllm_plugin.loads import critical, nothing, steps_until_served, without_floors

A, B, C = 1, 2, 3


def test_who_waits_for_a_place_is_passed_by_nobody_less_urgent() -> None:
    """Stock vLLM lets whoever shares the loaded adapter pass for ever."""
    engine = FakeVllm(max_loras=1)
    engine.add("a", CRITICAL, adapter=A, max_tokens=30)
    engine.step()
    engine.add("urgent", CRITICAL, adapter=B)
    for number in range(20):
        engine.add(f"bulk{number}", BULK, adapter=A, max_tokens=6)
    engine.run()
    assert engine.finished[:2] == ["a", "urgent"]


def test_those_without_an_adapter_need_no_place() -> None:
    engine = FakeVllm(max_loras=1)
    engine.add("a", CRITICAL, adapter=A, max_tokens=30)
    engine.step()
    engine.add("waits", CRITICAL, adapter=B)
    engine.add("plain", BULK)
    while "a" not in engine.finished:
        engine.step()
    assert engine.finished == ["plain", "a"]
    engine.run()


def arrivals(engine: FakeVllm, adapters: tuple[int, ...]) -> Iterator[None]:
    """Keep four requests of each adapter there, in turns."""
    number = 0
    while True:
        waiting = [request.lora_request for request in engine.requests.values()]
        for adapter in adapters:
            if sum(each is not None and each.lora_int_id == adapter for each in waiting) < 4:
                engine.add(f"{adapter}-{number}", NORMAL, adapter=adapter)
                number += 1
        yield


def test_two_that_never_end_take_turns_in_one_place() -> None:
    engine = FakeVllm(max_loras=1)
    more = arrivals(engine, (A, B))
    for _ in range(400):
        next(more)
        engine.step()
    shares = [sum(name.startswith(f"{each}-") for name in engine.finished) for each in (A, B)]
    assert min(shares) > 0.3 * sum(shares)


def test_more_of_one_adapter_than_are_asked_about_hold_up_nobody_for_ever() -> None:
    engine = FakeVllm(max_loras=1)
    engine.add("a", BULK, adapter=A, max_tokens=5)
    engine.step()
    for number in range(100):
        engine.add(f"b{number}", BULK, adapter=B, max_tokens=1)
    engine.add("last", BULK, adapter=A)
    engine.run()
    assert len(engine.finished) == 102


@hypothesis_settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from((CRITICAL, NORMAL, BULK)),
            st.integers(0, 4),
            st.integers(1, 40),
            st.integers(1, 12),
            st.integers(0, 3),
        ),
        max_size=40,
    ),
)
def test_i14_all_end_and_no_step_has_more_adapters_than_places(
    most: int, requests: list[tuple[int, int, int, int, int]]
) -> None:
    """The double fails on more adapters than places, as vLLM does."""
    engine = FakeVllm(max_loras=most, num_blocks=30)
    for number, (priority, adapter, prompt, max_tokens, steps) in enumerate(requests):
        engine.add(f"r{number}", priority, prompt, max_tokens, adapter=adapter)
        for _ in range(steps):
            engine.step()
    engine.run(3000)
    assert len(engine.finished) == len(requests)


@pytest.mark.parametrize("floors", [True, False])
def test_g1_a_floor_gets_places_too(floors: bool) -> None:
    """Between critical requests that take turns; without a floor bulk comes last."""
    engine = FakeVllm(max_loras=1, settings=Settings() if floors else without_floors())
    for number in range(300):
        engine.add(f"c{number}", CRITICAL, adapter=A if number % 2 else C, max_tokens=8)
    engine.add("bulk", BULK, adapter=B, max_tokens=2)
    engine.run(3000)
    assert (engine.finished.index("bulk") < 250) == floors


@pytest.mark.parametrize("settings", [Settings(), without_floors()], ids=["floors", "none"])
@pytest.mark.parametrize("depth", [1, 2])
def test_g2_parked_bulk_gives_its_place_up(settings: Settings, depth: int) -> None:
    """Critical work that needs no adapter parks bulk that has one, and another one is asked for."""
    engine = FakeVllm(max_loras=1, max_num_seqs=16, num_blocks=4000, depth=depth, settings=settings)
    engine.add("bulk", BULK, adapter=A, max_tokens=200)
    load = critical(engine)
    for _ in range(5):
        next(load)
        engine.step()
    engine.add("urgent", CRITICAL, adapter=B, max_tokens=2)
    assert steps_until_served(engine, "urgent", load) <= 5 * depth


def test_g2_a_place_on_paper_for_who_is_owed_bars_nobody_more_urgent() -> None:
    """All slots are taken, so bulk could not be admitted; critical can, by a preemption."""
    engine = FakeVllm(max_loras=1, num_blocks=2000)
    for number in range(4):
        engine.add(f"normal{number}", NORMAL, max_tokens=200)
    engine.step()
    engine.add("bulk", BULK, adapter=A)
    for _ in range(60):
        engine.step()
    engine.add("urgent", CRITICAL, adapter=B)
    assert steps_until_served(engine, "urgent", nothing()) == 0


@pytest.mark.parametrize("adapter", [0, A, B])
def test_g2_a_floor_does_not_close_an_adapter_to_critical(adapter: int) -> None:
    engine = FakeVllm(max_loras=1, max_num_seqs=8, num_blocks=2000)
    engine.add("bulk", BULK, adapter=A, max_tokens=200)
    longest, arrived = 0, dict[str, int]()
    for step in range(400):
        if step % 3 == 0:
            engine.add(f"c{step}", CRITICAL, adapter=A, max_tokens=6)
            arrived[f"c{step}"] = step
        if step == 20:
            engine.add("other", BULK, adapter=adapter, max_tokens=200)
        for name in engine.step():
            longest = max(longest, step - arrived.pop(name, step))
    assert longest <= 5


@pytest.mark.parametrize("number", [10, 64, 300])
def test_many_who_wait_for_a_place_hide_nobody(number: int) -> None:
    engine = FakeVllm(max_loras=1, max_num_seqs=8, num_blocks=1000)
    engine.add("a", NORMAL, adapter=A, max_tokens=200)
    engine.step()
    for index in range(number):
        engine.add(f"b{index}", NORMAL, adapter=B, max_tokens=1)
    engine.add("plain", NORMAL, max_tokens=1)
    assert steps_until_served(engine, "plain", nothing()) <= 1


def test_who_is_refused_too_keeps_its_turn() -> None:
    """Refused for a while by vLLM, it is not passed over from the start again."""
    engine = FakeVllm(max_loras=1, num_blocks=2000)
    engine.refuses = lambda request, engine: request.request_id == "b" and engine.now < 3
    engine.add("a", NORMAL, adapter=A, max_tokens=6)
    engine.step()
    engine.add("b", NORMAL, adapter=B)
    more = arrivals(engine, (A,))
    while engine.now < 3:
        next(more)
        engine.step()
    assert steps_until_served(engine, "b", more) <= 40


def test_who_lacks_blocks_keeps_no_place_on_paper() -> None:
    """Bulk with another adapter goes on while a large request waits for blocks."""
    engine = FakeVllm(max_loras=1, max_num_seqs=8, num_blocks=70)
    engine.add("long", CRITICAL, prompt=160, max_tokens=90)
    for _ in range(8):
        engine.step()
    engine.add("big", NORMAL, prompt=200, adapter=B)
    for number in range(3):
        engine.add(f"bulk{number}", BULK, adapter=A, max_tokens=2)
    for _ in range(30):
        engine.step()
    assert set(engine.finished) == {"bulk0", "bulk1", "bulk2"}
    engine.run()


def test_nobody_is_evicted_for_who_is_refused_or_not_most_urgent() -> None:
    engine = FakeVllm(max_loras=1, max_num_seqs=16, num_blocks=400)
    engine.refuses = lambda request, _: request.request_id == "refused"
    for number in range(6):
        engine.add(f"bulk{number}", BULK, adapter=A, max_tokens=100)
    for _ in range(3):
        engine.step()
    engine.add("refused", CRITICAL, adapter=B)
    engine.add("normal", NORMAL, adapter=C, prompt=4, max_tokens=1)
    for _ in range(60):
        engine.step()
    # Once, before vLLM has refused it.
    assert len(engine.preempted) <= 6


@pytest.mark.parametrize("depth", [1, 2])
def test_g2_all_who_run_give_their_place_up_together(depth: int) -> None:
    """Nobody else is there whose step could be computed while those under way end."""
    engine = FakeVllm(max_loras=1, max_num_seqs=16, num_blocks=4000, depth=depth)
    for number in range(8):
        engine.add(f"bulk{number}", BULK, adapter=A, max_tokens=100)
    for _ in range(5):
        engine.step()
    engine.add("urgent", CRITICAL, adapter=B, max_tokens=2)
    assert steps_until_served(engine, "urgent", nothing()) <= depth
    engine.run(2000)
    assert len(engine.finished) == 9
