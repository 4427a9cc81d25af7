"""Is nobody planned for whose LoRA adapter has no place, and does everybody get one in time?"""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vllm_plugin.double import BULK, CRITICAL, NORMAL, FakeVllm

A, B, C = 1, 2, 3


def test_an_urgent_request_gets_a_place_before_anybody_less_urgent_gets_another() -> None:
    """Stock vLLM lets whoever shares the loaded adapter pass for ever."""
    engine = FakeVllm(max_loras=1)
    for number in range(3):
        engine.add(f"a{number}", BULK, adapter=A, max_tokens=6)
    engine.step()
    engine.add("urgent", CRITICAL, adapter=B)
    for number in range(3, 40):
        engine.add(f"a{number}", BULK, adapter=A, max_tokens=6)
    engine.run()
    assert set(engine.finished[:3]) == {"a0", "a1", "a2"}
    assert engine.finished[3] == "urgent"


def test_those_without_an_adapter_need_no_place() -> None:
    engine = FakeVllm(max_loras=1)
    engine.add("a", BULK, adapter=A, max_tokens=30)
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


@settings(max_examples=60)
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
    engine.run(2000)
    assert len(engine.finished) == len(requests)


def test_a_floor_gets_places_too() -> None:
    """Critical requests with ever new adapters leave bulk its floor."""
    engine = FakeVllm(max_loras=1)
    for number in range(200):
        engine.add(f"c{number}", CRITICAL, adapter=A if number % 2 else C, max_tokens=8)
    engine.add("bulk", BULK, adapter=B, max_tokens=2)
    for _ in range(1000):
        engine.step()
        if "bulk" in engine.finished:
            break
    assert len(engine.finished) < 150, engine.finished
