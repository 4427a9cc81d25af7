"""Does everybody get on, when vLLM refuses whom the plan admits?"""

from dataclasses import replace
from itertools import pairwise

from headway.core.tier import DEFAULT_TIERS, Tiers
from headway.vllm_plugin.refusals import MOST_SAT_OUT, Refusals
from headway.vllm_plugin.settings import Settings
from tests.vllm_plugin.double import BULK, CRITICAL, FakeVllm, Request


def test_after_the_first_refusal_it_is_offered_at_once_and_then_ever_less_often() -> None:
    refusals, offered = Refusals(), []
    for step in range(60):
        if not refusals.sits_out("r", step):
            offered.append(step)
            refusals.note("r", step + 1)
    gaps = [after - before for before, after in pairwise(offered)]
    assert gaps == [1, 2, 3, 5, *[MOST_SAT_OUT + 1] * (len(gaps) - 4)]
    refusals.forget("r")
    assert not refusals.sits_out("r", 60)
    assert len(refusals) == 0


def in_prefill(request: Request, engine: FakeVllm) -> bool:
    """Refuse critical requests while a bulk prompt is half computed, as a full encoder cache does.

    What fills it is free once that prompt is done, and not if it is parked.
    """
    begun = (each for each in engine.running if each.priority == BULK)
    half = any(each.num_computed_tokens < each.num_prompt_tokens for each in begun)
    return request.priority == CRITICAL and half


def test_who_is_refused_does_not_park_those_that_it_waits_for() -> None:
    tiers = Tiers(tuple(replace(tier, floor=0.0) for tier in DEFAULT_TIERS))
    engine = FakeVllm(refuses=in_prefill, settings=Settings(tiers=tiers))
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
    assert report["headway:refused_admissions:critical"] == 3
