"""Are vLLM's own bounds of a step kept, and is what they allow used?"""

import pytest
from prometheus_client import REGISTRY

from headway.vllm_plugin import QoSScheduler
from headway.vllm_plugin.compat import IncompatibleError
from headway.vllm_plugin.stat_logger import QoSStatLogger
from tests_vllm.engine import BULK, CRITICAL, Engine

NO_RESERVE = {"tiers": {"critical": {"reserve": 0}, "normal": {"reserve": 0}}}


@pytest.mark.parametrize("max_num_seqs", [1, 2])
def test_g2_a_step_under_way_is_waited_for_though_nobody_else_runs(
    model: str, max_num_seqs: int
) -> None:
    """Both who run hold so many blocks that both have to go."""
    engine = Engine(model, max_num_seqs=max_num_seqs, num_blocks=32, depth=2, settings=NO_RESERVE)
    for number in range(max_num_seqs):
        engine.add(f"b{number}", BULK, prompt=150, max_tokens=60)
    for _ in range(12):
        engine.step()
    assert len(engine.running) == max_num_seqs
    engine.add("critical", CRITICAL, prompt=400)
    assert "critical" not in engine.step()
    assert engine.step()["critical"] > 0
    assert engine.running == ["critical"]
    engine.run()
    assert all(len(engine.outputs[f"b{number}"]) == 60 for number in range(max_num_seqs))


def test_the_watermark_holds_up_nobody_who_is_alone(model: str) -> None:
    """18 of 60 blocks are the watermark; the prompt takes 44 and grows to 59."""
    engine = Engine(model, num_blocks=61, watermark=0.3, settings=NO_RESERVE)
    assert engine.scheduler.kv_cache_manager.watermark_blocks == 18
    engine.add("long", CRITICAL, prompt=700, max_tokens=240)
    engine.run()
    assert len(engine.outputs["long"]) == 240


def test_beside_others_the_watermark_is_left_available(model: str) -> None:
    """vLLM refuses nobody whom the plan admits."""
    engine = Engine(model, num_blocks=61, watermark=0.3, settings=NO_RESERVE)
    for number in range(6):
        engine.add(f"b{number}", BULK, prompt=150, max_tokens=20)
    fewest = 61
    while len(engine.outputs["b0"]) < 5:
        engine.step()
        fewest = min(fewest, engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
    assert 16 <= fewest <= 30, "admissions stop where the watermark is, but for what has grown"
    engine.add("critical", CRITICAL, prompt=300)
    assert engine.step()["critical"] > 0
    engine.run()


def test_no_more_are_active_than_may_be_and_a_gateway_is_told_so(model: str) -> None:
    engine = Engine(model, max_num_active_seqs=3, settings=NO_RESERVE)
    for number in range(6):
        engine.add(f"b{number}", BULK)
    most = 0
    while any(len(tokens) < 8 for tokens in engine.outputs.values()):
        engine.step()
        most = max(most, len(engine.running))
    assert most == 3
    engine.config.scheduler_config.scheduler_cls = QoSScheduler
    QoSStatLogger(engine.config, [7])
    names = engine.config.model_config.served_model_name, "7"
    labels = dict(zip(("model_name", "engine"), names, strict=True))
    assert REGISTRY.get_sample_value("headway:max_num_seqs", labels) == 3


def test_a_window_is_refused(model: str) -> None:
    with pytest.raises(IncompatibleError, match="--disable-hybrid-kv-cache-manager"):
        Engine(model, window=64)


def test_an_admission_of_one_token_has_all_slots_for_its_drafts(model: str) -> None:
    """Its prompt is in the cache but for a token, and vLLM makes it as long as the decodes."""
    engine = Engine(model, settings=NO_RESERVE)
    engine.scheduler.num_spec_tokens = 3
    prompt = list(range(5000, 5033))
    engine.add("before", BULK, prompt=prompt)
    engine.run()
    engine.add("running", BULK, max_tokens=40)
    while not engine.outputs["running"]:
        engine.step()
    engine.add("again", BULK, prompt=prompt)
    assert engine.step()["again"] == 1 + 3
    engine.run()
    assert len(engine.outputs["again"]) == 8


def test_drafts_that_exceed_a_step_together_do_not_empty_it(model: str) -> None:
    """Eight requests with ten drafts each are 88 tokens, of 64 that a step may have."""
    engine = Engine(model, settings=NO_RESERVE)
    engine.scheduler.num_spec_tokens = 10
    for number in range(8):
        engine.add(f"b{number}", BULK, prompt=8, max_tokens=40)
    while not all(engine.outputs.values()):
        engine.step()
    for _ in range(10):
        for request in engine.scheduler.running:
            request.spec_token_ids = [7] * 10
        step = engine.step()
        assert len(step) == 5
        assert sum(step.values()) == 55
    engine.run()
    assert all(len(tokens) == 40 for tokens in engine.outputs.values())


def test_drafts_at_the_end_of_the_longest_request_need_no_block_beyond_it(model: str) -> None:
    """The KV cache holds just one request of the model's length, and drafts would go past it."""
    engine = Engine(model, num_blocks=65, max_num_batched_tokens=256, num_drafts=4)
    engine.add("long", CRITICAL, prompt=960, max_tokens=64)
    engine.add("other", BULK, prompt=40, max_tokens=8)
    for _ in range(200):
        for request in engine.scheduler.running:
            if not request.is_prefill_chunk:
                request.spec_token_ids = [7] * 4
        engine.step()
    assert {name: len(tokens) for name, tokens in engine.outputs.items()} == {
        "long": 64,
        "other": 8,
    }
