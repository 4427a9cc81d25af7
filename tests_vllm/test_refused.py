"""Does vLLM's scheduler, wrapped, get on where vLLM refuses a part of the plan?"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from tests_vllm.engine import BULK, CRITICAL, NORMAL, Engine
from tests_vllm.test_scheduler import finished_order

NO_FLOORS = {"tiers": {"normal": {"floor": 0}, "bulk": {"floor": 0}}}


@pytest.mark.parametrize("depth", [1, 2])
def test_parked_requests_keep_the_place_of_their_adapter(model: str, depth: int) -> None:
    """vLLM stops with an AssertionError where running requests have more adapters than places."""
    engine = Engine(model, max_loras=1, depth=depth, settings=NO_FLOORS)
    for index in range(4):
        engine.add(f"a{index}", BULK, adapter=1, max_tokens=20)
    for _ in range(3):
        engine.step()
    engine.add("plain", CRITICAL, prompt=300)
    engine.add("other", BULK, adapter=2)
    for index in range(4, 12):
        engine.add(f"a{index}", BULK, adapter=1, max_tokens=20)
    order = finished_order(engine)
    assert order[0] == "plain"
    assert order.index("a3") < order.index("other")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_place_is_given_up_to_who_is_more_urgent(model: str, depth: int) -> None:
    """Without it parked bulk would keep it as long as there is critical work."""
    engine = Engine(model, max_loras=1, depth=depth, settings=NO_FLOORS, num_blocks=400)
    engine.add("bulk", BULK, adapter=1, max_tokens=60)
    for _ in range(3):
        engine.step()
    for index in range(30):
        engine.add(f"plain{index}", CRITICAL, prompt=100, max_tokens=2)
    engine.add("other", CRITICAL, adapter=2, max_tokens=2)
    order = finished_order(engine)
    assert order[-1] == "bulk"


def test_a_session_between_two_inputs_keeps_the_place_of_its_adapter(model: str) -> None:
    """It is resumed by vLLM, whatever is parked meanwhile."""
    engine = Engine(model, max_loras=1, settings=NO_FLOORS, num_blocks=400)
    engine.add_session("session", adapter=2)
    engine.add("bulk", BULK, adapter=1, max_tokens=60)
    for _ in range(3):
        engine.step()
    assert "bulk" not in engine.running
    engine.add("plain", CRITICAL, prompt=200, max_tokens=4)
    engine.feed("session", 50)
    for _ in range(20):
        engine.step()
        engine.check()
    engine.abort("session")
    engine.run()


def test_stock_vllm_lets_the_loaded_adapter_pass(model: str) -> None:
    """The negative control of the order above."""
    engine = Engine(model, cls=Scheduler, max_loras=1, max_num_seqs=4)
    for index in range(4):
        engine.add(f"a{index}", BULK, adapter=1, max_tokens=10 + 5 * index)
    engine.step()
    engine.add("other", CRITICAL, adapter=2)
    for index in range(4, 12):
        engine.add(f"a{index}", BULK, adapter=1, max_tokens=20)
    assert finished_order(engine)[-1] == "other"


def test_adapters_that_never_end_take_turns(model: str) -> None:
    engine = Engine(model, max_loras=2, num_blocks=400)
    for index in range(60):
        engine.add(f"r{index}", (CRITICAL, NORMAL, BULK)[index % 3], adapter=1 + index % 5)
        engine.step()
        engine.check()
    engine.run()


def test_an_image_for_which_there_is_no_memory_parks_nobody_for_ever(model: str) -> None:
    """The encoder's cache is full of an image in a prompt that is half computed."""
    engine = Engine(model, encoder_cache=120, settings=NO_FLOORS)
    engine.add("bulk", BULK, prompt=400, image=(8, 100))
    engine.step()
    engine.add("critical", CRITICAL, prompt=200, image=(0, 100))
    engine.run(60)


def test_a_session_between_two_inputs_hides_no_refusal(model: str) -> None:
    """As above, beside a session that holds blocks and waits for its client."""
    engine = Engine(model, encoder_cache=120, settings=NO_FLOORS)
    engine.add_session("session")
    engine.add("bulk", BULK, prompt=400, image=(8, 100))
    engine.step()
    engine.add("critical", CRITICAL, prompt=200, image=(0, 100))
    for _ in range(60):
        engine.step()
    assert [len(engine.outputs[name]) for name in ("bulk", "critical")] == [8, 8]
    engine.abort("session")
    engine.run()


def test_no_image_is_cut_in_two(model: str) -> None:
    """The chunks that a floor pays for are shorter than an image."""
    engine = Engine(model, encoder_cache=200, whole_images=True, num_blocks=800)
    images = {"image0": 3, "image1": 11, "image2": 0}
    for name, offset in images.items():
        engine.add(name, BULK, prompt=100, image=(offset, 30))
    for index in range(60):
        engine.add(f"critical{index}", CRITICAL, prompt=60)
        engine.step()
        for request in engine.scheduler.running:
            begin = images.get(request.request_id, 1000)
            assert not begin < request.num_computed_tokens < begin + 30
    engine.run()


def test_clearing_the_caches_protects_nobody_and_makes_nobody_rest(model: str) -> None:
    """As a change of weights does, again and again."""
    engine = Engine(model, max_num_seqs=8, num_blocks=400)
    for index in range(8):
        engine.add(f"r{index}", BULK, max_tokens=60)
    for _ in range(5):
        for _ in range(3):
            engine.step()
        assert len(engine.running) == 8
        assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
        engine.check()
    for _ in range(3):
        engine.step()
    assert len(engine.running) == 8
    engine.run()


def test_a_step_without_prompts_computes_decodes(model: str) -> None:
    """Data-parallel ranks hold prompts back together; the plan must not park decodes for those."""
    engine = Engine(model)
    engine.add("decodes", BULK, max_tokens=50)
    for _ in range(4):
        engine.step()
    engine.scheduler.prefill_capacity_bound = False
    engine.add("prompt", CRITICAL, prompt=300)
    engine.throttles = True
    assert set(engine.step()) == {"decodes"}
    engine.throttles = False
    assert "prompt" in engine.step()
    engine.run()


@pytest.mark.parametrize("settings", [{}, NO_FLOORS], ids=["floors", "none"])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_prompt_that_stands_before_its_image_parks_nobody_for_ever(
    model: str, settings: dict[str, object], depth: int
) -> None:
    """vLLM admits the text before the image; nothing of it is computed after that."""
    engine = Engine(model, encoder_cache=120, settings=settings, depth=depth)
    engine.add("bulk", BULK, prompt=700, image=(8, 100))
    engine.step()
    engine.add("critical", CRITICAL, prompt=300, image=(8, 100))
    engine.run(100)


def test_g2_an_image_gives_way_to_a_more_urgent_one(model: str) -> None:
    """Critical text that never ends parks the bulk prompt whose image fills the encoder's cache."""
    engine = Engine(model, encoder_cache=120, settings=NO_FLOORS, num_blocks=800, max_num_seqs=16)
    engine.add("bulk", BULK, prompt=400, image=(8, 100))
    engine.step()
    for index in range(200):
        engine.add(f"text{index}", CRITICAL, prompt=100, max_tokens=1)
    engine.add("image", CRITICAL, prompt=110, image=(8, 100), max_tokens=1)
    order = finished_order(engine)
    assert order[-1] == "bulk"


@pytest.mark.parametrize("settings", [{}, NO_FLOORS], ids=["floors", "no floors"])
def test_a_fed_session_that_does_not_fit_brings_nothing_to_a_standstill(
    model: str, settings: dict[str, object]
) -> None:
    """vLLM resumes it before a critical prompt, for which bulk is parked that holds its blocks."""
    engine = Engine(model, num_blocks=66, settings=settings)
    engine.add_session("session")
    for number in range(3):
        engine.add(f"b{number}", BULK, prompt=220, max_tokens=40)
    while not all(engine.outputs[f"b{number}"] for number in range(3)):
        engine.step()
    engine.feed("session", 500)
    engine.add("critical", CRITICAL, prompt=100, max_tokens=4)
    for _ in range(200):
        engine.step()
    assert len(engine.outputs["critical"]) == 4
    assert all(len(engine.outputs[f"b{number}"]) == 40 for number in range(3))
    assert len(engine.outputs["session"]) == 8
