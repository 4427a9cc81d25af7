"""Does everybody get on, when vLLM refuses whom the plan admits?"""

from itertools import pairwise

import pytest

from headway.vllm_plugin.refusals import MOST_SAT_OUT, Refusals
from tests.vllm_plugin.double import BULK, CRITICAL, FakeVllm, Request
from tests.vllm_plugin.loads import critical, steps_until_served, without_floors


def test_after_the_first_refusal_it_is_offered_at_once_and_then_ever_less_often() -> None:
    refusals, offered = Refusals(), []
    for step in range(60):
        if "r" not in refusals.sitting_out(step):
            offered.append(step)
            refusals.note("r", step + 1)
    gaps = [after - before for before, after in pairwise(offered)]
    assert gaps == [1, 2, 3, 5, *[MOST_SAT_OUT + 1] * (len(gaps) - 4)]
    refusals.forget("r")
    assert refusals.sitting_out(60) == frozenset()
    assert len(refusals) == 0


def in_prefill(request: Request, engine: FakeVllm) -> bool:
    """Refuse critical requests while a bulk prompt is half computed, as a full encoder cache does.

    What fills it is free once that prompt is done, and not if it is parked.
    """
    begun = (each for each in engine.running if each.priority == BULK)
    half = any(each.num_computed_tokens < each.num_prompt_tokens for each in begun)
    return request.priority == CRITICAL and half


def test_who_is_refused_does_not_park_those_that_it_waits_for() -> None:
    engine = FakeVllm(refuses=in_prefill, settings=without_floors())
    engine.add("bulk", BULK, prompt=120)
    engine.step()
    for number in range(6):
        engine.add(f"critical{number}", CRITICAL, prompt=100)
    engine.run(200)
    assert len(engine.finished) == 7


def test_refusals_are_counted_by_tier() -> None:
    engine = FakeVllm(refuses=lambda request, _: request.priority == CRITICAL)
    engine.add("c", CRITICAL)
    for _ in range(4):
        engine.step()
    report = engine.planner.report(engine.running)
    assert report["headway:refused:critical"] == 3


def test_only_the_one_that_was_refused_sits_out() -> None:
    """vLLM asks nobody behind the first that it cannot admit."""
    engine = FakeVllm(max_num_seqs=8, num_blocks=2000)
    engine.refuses = lambda request, _: request.request_id == "head"
    engine.add("head", CRITICAL)
    for number in range(4):
        engine.add(f"text{number}", CRITICAL, prompt=9, max_tokens=2)
    for _ in range(12):
        engine.step()
    assert sorted(engine.finished) == ["text0", "text1", "text2", "text3"]


def test_g2_an_image_that_a_parked_prompt_leaves_no_memory_makes_it_give_way() -> None:
    """Critical prompts that never end park bulk, whose image is in the encoder's cache."""
    engine = FakeVllm(max_num_seqs=8, num_blocks=2000, settings=without_floors())

    def is_full(request: Request, engine: FakeVllm) -> bool:
        holders = (each for each in engine.running if each.mm_features)
        held = any(each.num_computed_tokens < each.num_prompt_tokens for each in holders)
        return bool(request.mm_features) and held

    engine.refuses = is_full
    engine.add("bulk", BULK, prompt=120).mm_features = ("image",)
    engine.step()
    load = critical(engine)
    next(load)
    engine.add("urgent", CRITICAL).mm_features = ("image",)
    assert steps_until_served(engine, "urgent", load) <= 20


@pytest.mark.parametrize("depth", [1, 2])
def test_who_has_begun_and_is_refused_does_not_park_those_that_it_waits_for(depth: int) -> None:
    """vLLM admits the text before an image, and then computes nothing while the encoder is full."""
    engine = FakeVllm(max_num_seqs=8, num_blocks=2000, depth=depth, settings=without_floors())

    def stands_before_its_image(request: Request, engine: FakeVllm) -> bool:
        begun = [r for r in engine.running if r.mm_features and r.num_computed_tokens >= 8]
        others = [r for r in begun if r is not request and r.num_computed_tokens < 108]
        return bool(others) and bool(request.mm_features) and request.num_computed_tokens == 8

    engine.stalls = stands_before_its_image
    engine.add("bulk", BULK, prompt=200).mm_features = ("image",)
    for _ in range(2):
        engine.step()
    engine.add("urgent", CRITICAL, prompt=120).mm_features = ("image",)
    engine.run(200)
