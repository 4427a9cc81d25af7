"""Are the metrics vLLM's, true at each scrape, and harmless when they fail? (I1, I2, I3)"""

import logging
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.metrics.engine import EngineMetrics, EngineReading, RequestTimes

IDLE = EngineReading(
    max_num_seqs=4,
    tier_names=("critical", "normal", "bulk"),
    num_running=(0, 0, 0),
    num_waiting=(0, 0, 0),
    num_held_blocks=0,
    num_cached_blocks=2,
    num_free_blocks=8,
    block_size=16,
    num_preemptions=0,
    num_prompt_tokens=0,
    num_generation_tokens=0,
    num_prefix_queries=0,
    num_prefix_hits=0,
    num_steps=0,
    num_batched_tokens=0,
    busy_s=0.0,
    num_finished={},
)
BUSY = replace(
    IDLE,
    num_running=(1, 2, 3),
    num_waiting=(0, 4, 5),
    num_held_blocks=6,
    num_free_blocks=2,
    num_finished={"stop": 7},
)
TIMES = RequestTimes(
    num_prompt_tokens=10,
    max_tokens=16,
    num_cached_tokens=4,
    num_generation_tokens=3,
    queue_s=0.2,
    num_preemptions=1,
    first_token_s=0.5,
    last_token_s=0.8,
    gaps_s=[(0.1, 1), (0.2, 2)],
)

PANELS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
    "vllm:admission_rejections_total",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
    "vllm:request_time_per_output_token_seconds_bucket",
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:request_decode_time_seconds_bucket",
    "vllm:request_queue_time_seconds_bucket",
    "vllm:request_prefill_time_seconds_bucket",
    "vllm:request_inference_time_seconds_bucket",
    "vllm:request_num_preemptions_bucket",
    "vllm:request_prompt_tokens_bucket",
    "vllm:request_generation_tokens_bucket",
    "vllm:request_params_max_tokens_bucket",
)


class Engine:
    """An engine whose numbers are set by hand."""

    def __init__(self) -> None:
        self.reading = IDLE
        self.fails = False

    def read(self) -> EngineReading:
        if self.fails:
            raise RuntimeError("no numbers today")
        return self.reading


def series(metrics: EngineMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: EngineMetrics, name: str, **labels: str) -> float:
    wanted = {"model_name": "m", "engine": "0", **labels}
    return series(metrics)[name, tuple(sorted(wanted.items()))]


def test_every_panel_of_vllm_finds_its_series() -> None:
    names = {name for name, _ in series(EngineMetrics("m", Engine().read))}
    assert set(PANELS) <= names


def test_predicted_and_actual_step_times_can_be_compared() -> None:
    engine = Engine()
    metrics = EngineMetrics("m", engine.read)
    engine.reading = replace(IDLE, step_s=2.0, predicted_s=1.8, num_late_steps=3, safety=1.3)
    assert value(metrics, "headway:step_seconds_total") == 2.0
    assert value(metrics, "headway:step_predicted_seconds_total") == 1.8
    assert value(metrics, "headway:late_steps_total") == 3
    assert value(metrics, "headway:step_safety_factor") == 1.3


def test_gauges_are_true_at_each_scrape() -> None:
    engine = Engine()
    metrics = EngineMetrics("m", engine.read)
    engine.reading = BUSY
    assert value(metrics, "vllm:num_requests_running") == 6
    assert value(metrics, "vllm:num_requests_waiting") == 9
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0.6
    assert value(metrics, "headway:num_requests_waiting", tier="bulk") == 5
    assert value(metrics, "headway:kv_blocks", state="held") == 6
    assert value(metrics, "vllm:request_success_total", finished_reason="stop") == 7
    engine.reading = IDLE
    assert value(metrics, "vllm:num_requests_running") == 0
    assert value(metrics, "vllm:num_requests_waiting") == 0
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0


def test_a_request_is_observed_once_in_each_histogram() -> None:
    metrics = EngineMetrics("m", Engine().read)
    metrics.completed(TIMES)
    assert value(metrics, "vllm:time_to_first_token_seconds_sum") == 0.5
    assert value(metrics, "vllm:e2e_request_latency_seconds_sum") == 0.8
    assert value(metrics, "vllm:request_decode_time_seconds_sum") == pytest.approx(0.3)
    assert value(metrics, "vllm:inter_token_latency_seconds_count") == 3
    assert value(metrics, "vllm:inter_token_latency_seconds_sum") == pytest.approx(0.3)
    assert value(metrics, "vllm:request_time_per_output_token_seconds_sum") == pytest.approx(0.1)
    assert value(metrics, "vllm:prompt_tokens_cached_total") == 4


def test_buckets_see_the_tail() -> None:
    metrics = EngineMetrics("m", Engine().read)
    slow = replace(TIMES, first_token_s=300.0, last_token_s=900.0, gaps_s=[(0.003, 1)])
    metrics.completed(slow)
    assert value(metrics, "vllm:time_to_first_token_seconds_bucket", le="160.0") == 0
    assert value(metrics, "vllm:time_to_first_token_seconds_bucket", le="640.0") == 1
    assert value(metrics, "vllm:e2e_request_latency_seconds_bucket", le="960.0") == 1
    assert value(metrics, "vllm:inter_token_latency_seconds_bucket", le="0.0025") == 0
    assert value(metrics, "vllm:inter_token_latency_seconds_bucket", le="0.005") == 1


def test_an_answer_of_one_token_has_no_gaps() -> None:
    metrics = EngineMetrics("m", Engine().read)
    metrics.completed(replace(TIMES, gaps_s=[], last_token_s=0.5, num_generation_tokens=1))
    assert value(metrics, "vllm:inter_token_latency_seconds_count") == 0
    assert value(metrics, "vllm:request_time_per_output_token_seconds_count") == 0
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 1


def test_the_number_of_series_does_not_grow() -> None:
    metrics = EngineMetrics("m", Engine().read)
    before = len(series(metrics))
    for _ in range(1000):
        metrics.completed(TIMES)
        metrics.rejected()
    assert len(series(metrics)) == before
    assert len(metrics.render()) < 1_000_000


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b", "é", "x" * 10_000])
def test_any_model_name_stays_parseable(name: str) -> None:
    metrics = EngineMetrics(name, Engine().read)
    assert any(("model_name", name) in labels for _, labels in series(metrics))


def test_a_failure_to_record_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    metrics = EngineMetrics("m", Engine().read)
    with caplog.at_level(logging.ERROR):
        metrics.completed(replace(TIMES, num_cached_tokens=-1))
    assert len(caplog.records) == 1


def test_counters_survive_a_failing_scrape() -> None:
    engine = Engine()
    metrics = EngineMetrics("m", engine.read)
    metrics.completed(TIMES)
    engine.fails = True
    with pytest.raises(RuntimeError):
        metrics.render()
    engine.fails = False
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 1
