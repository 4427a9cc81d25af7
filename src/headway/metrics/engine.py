"""What does the engine measure, and under which names?

Names, labels and buckets are vLLM's, so that its panels and the gateways that read them work as
they are; ours start with `headway:`. Gauges and counters are read from the engine at each scrape,
nothing is counted up and down here. Histograms are fed by the server as requests go on; a failure
in here is logged and never reaches a request.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headway.metrics.buckets import ITL_BUCKETS_S, LATENCY_BUCKETS_S, TTFT_BUCKETS_S

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
ENGINE_INDEX = "0"
TOKEN_BUCKETS = tuple(float(step * 10**power) for power in range(6) for step in (1, 2, 5))
"""vLLM's 1-2-5 steps, up to half a million tokens."""

_LABELS = ("model_name", "engine")
PREEMPTION_BUCKETS = (0, 1, 2, 3, 5, 10)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """The engine at the moment of a scrape. Counters count since the start."""

    tier_names: Sequence[str]
    num_running: Sequence[int]
    """By rank, as the next."""
    num_waiting: Sequence[int]
    num_held_blocks: int
    num_cached_blocks: int
    num_free_blocks: int
    block_size: int
    max_num_seqs: int
    num_preemptions: int
    num_prompt_tokens: int
    num_generation_tokens: int
    num_prefix_queries: int
    num_prefix_hits: int
    num_steps: int
    num_batched_tokens: int
    busy_s: float
    step_s: float = 0.0
    """Seconds that the model took, of steps whose time was predicted."""
    predicted_s: float = 0.0
    """Seconds predicted for the same steps."""
    num_late_steps: int = 0
    """Those of them that took longer than predicted times the safety factor."""
    safety: float = 1.0
    num_finished: Mapping[str, int]
    """Sequences by finish reason."""


@dataclass(slots=True, kw_only=True)
class RequestTimes:
    """What one request took, as far as it got. Seconds from its arrival at the server."""

    num_prompt_tokens: int
    max_tokens: int | None
    num_cached_tokens: int = 0
    num_generation_tokens: int = 0
    queue_s: float = 0.0
    """Arrival to the first step, of the prompt that waited longest."""
    num_preemptions: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    gaps_s: list[tuple[float, int]] = field(default_factory=list)
    """Time between two outputs of a choice, and how many tokens the later one had."""


class EngineMetrics:
    """The metrics of one engine, in a registry of their own."""

    def __init__(self, model_name: str, read: Callable[[], EngineReading]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_LiveMetrics(model_name, read))
        self._model_name = model_name
        labels = {"model_name": model_name, "engine": ENGINE_INDEX}

        def histogram(name: str, text: str, buckets: Sequence[float]) -> Histogram:
            family = Histogram(
                name, text, labelnames=_LABELS, buckets=buckets, registry=self._registry
            )
            return family.labels(**labels)

        self._ttft = histogram(
            "vllm:time_to_first_token_seconds", "Arrival to first token.", TTFT_BUCKETS_S
        )
        self._gap = histogram(
            "vllm:inter_token_latency_seconds", "Time between tokens.", ITL_BUCKETS_S
        )
        self._tpot = histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time per token after the first, of a request.",
            ITL_BUCKETS_S,
        )
        self._latency = histogram(
            "vllm:e2e_request_latency_seconds", "Arrival to last token.", LATENCY_BUCKETS_S
        )
        self._queue = histogram(
            "vllm:request_queue_time_seconds", "Arrival to first step.", LATENCY_BUCKETS_S
        )
        self._prefill = histogram(
            "vllm:request_prefill_time_seconds", "First step to first token.", LATENCY_BUCKETS_S
        )
        self._inference = histogram(
            "vllm:request_inference_time_seconds", "First step to last token.", LATENCY_BUCKETS_S
        )
        self._preemptions = histogram(
            "vllm:request_num_preemptions", "Preemptions of a request.", PREEMPTION_BUCKETS
        )
        self._decode = histogram(
            "vllm:request_decode_time_seconds", "First token to last.", LATENCY_BUCKETS_S
        )
        self._prompt = histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKEN_BUCKETS
        )
        self._generation = histogram(
            "vllm:request_generation_tokens", "Generated tokens of a request.", TOKEN_BUCKETS
        )
        self._max_tokens = histogram(
            "vllm:request_params_max_tokens", "max_tokens of a request.", TOKEN_BUCKETS
        )
        self._cached = Counter(
            "vllm:prompt_tokens_cached",
            "Prompt tokens that the prefix cache spared.",
            labelnames=_LABELS,
            registry=self._registry,
        ).labels(**labels)
        self._rejections = Counter(
            "vllm:admission_rejections",
            "Requests refused because the queue was full.",
            labelnames=("model_name", "reason"),
            registry=self._registry,
        )
        self._rejections.labels(model_name, "max_num_queued_reqs")

    def rejected(self) -> None:
        """Count a request refused because the queue was full."""
        with _contained():
            self._rejections.labels(self._model_name, "max_num_queued_reqs").inc()

    def completed(self, times: RequestTimes) -> None:
        """Observe a request that was answered to its end; cancelled and failed ones are not."""
        with _contained():
            self._prompt.observe(times.num_prompt_tokens)
            self._cached.inc(times.num_cached_tokens)
            self._generation.observe(times.num_generation_tokens)
            if times.max_tokens is not None:
                self._max_tokens.observe(times.max_tokens)
            for seconds, num_tokens in times.gaps_s:
                for _ in range(num_tokens):
                    self._gap.observe(seconds / num_tokens)
            self._observe_ends(times)

    def _observe_ends(self, times: RequestTimes) -> None:
        first, last = times.first_token_s, times.last_token_s
        if first is None or last is None:
            return
        self._ttft.observe(first)
        self._latency.observe(last)
        self._decode.observe(last - first)
        self._queue.observe(times.queue_s)
        self._prefill.observe(max(0.0, first - times.queue_s))
        self._inference.observe(max(0.0, last - times.queue_s))
        self._preemptions.observe(times.num_preemptions)
        num_tokens = sum(num for _, num in times.gaps_s)
        if num_tokens > 0:
            self._tpot.observe(sum(seconds for seconds, _ in times.gaps_s) / num_tokens)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


@contextmanager
def _contained() -> Iterator[None]:
    """Log what goes wrong in the block, and go on."""
    try:
        yield
    except Exception:  # noqa: BLE001 - no failure of a metric may reach a request
        _log.exception("a metric could not be recorded")


class _LiveMetrics(Collector):
    """Reads the engine at each scrape."""

    def __init__(self, model_name: str, read: Callable[[], EngineReading]) -> None:
        self._labels = (model_name, ENGINE_INDEX)
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge and counter as it stands."""
        reading = self._read()
        yield from self._gauges(reading)
        yield from self._queues(reading)
        yield from self._counters(reading)

    def _gauges(self, reading: EngineReading) -> Iterator[Metric]:
        blocks = {
            "held": reading.num_held_blocks,
            "cached": reading.num_cached_blocks,
            "free": reading.num_free_blocks,
        }
        num_blocks = sum(blocks.values())
        usage = reading.num_held_blocks / num_blocks if num_blocks > 0 else 0.0
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of blocks held, 0 to 1.", usage)
        yield self._gauge(
            "headway:max_num_seqs", "Most sequences that hold blocks.", reading.max_num_seqs
        )
        yield self._gauge(
            "headway:step_safety_factor",
            "What predictions are multiplied by to be exceeded rarely.",
            reading.safety,
        )
        config = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The KV cache.",
            labels=("model_name", "engine", "block_size", "num_gpu_blocks"),
        )
        config.add_metric((*self._labels, str(reading.block_size), str(num_blocks)), 1)
        yield config
        family = GaugeMetricFamily(
            "headway:kv_blocks",
            "Blocks held by requests, cached without a holder, and free.",
            labels=(*_LABELS, "state"),
        )
        for state, number in blocks.items():
            family.add_metric((*self._labels, state), number)
        yield family

    def _queues(self, reading: EngineReading) -> Iterator[Metric]:
        running, waiting = sum(reading.num_running), sum(reading.num_waiting)
        yield self._gauge("vllm:num_requests_running", "Sequences that hold blocks.", running)
        yield self._gauge("vllm:num_requests_waiting", "Sequences that wait.", waiting)
        reasons = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Sequences that wait, by reason.",
            labels=(*_LABELS, "reason"),
        )
        reasons.add_metric((*self._labels, "capacity"), waiting)
        reasons.add_metric((*self._labels, "deferred"), 0)
        yield reasons
        for name, text, numbers in (
            ("headway:num_requests_running", "Sequences that hold blocks.", reading.num_running),
            ("headway:num_requests_waiting", "Sequences that wait.", reading.num_waiting),
        ):
            family = GaugeMetricFamily(name, text, labels=(*_LABELS, "tier"))
            for rank, tier in enumerate(reading.tier_names):
                number = numbers[rank] if rank < len(numbers) else 0
                family.add_metric((*self._labels, tier), number)
            yield family

    def _counters(self, reading: EngineReading) -> Iterator[Metric]:
        for name, text, value in (
            ("vllm:num_preemptions", "Preemptions.", reading.num_preemptions),
            ("vllm:prompt_tokens", "Prompt tokens taken.", reading.num_prompt_tokens),
            ("vllm:generation_tokens", "Tokens generated.", reading.num_generation_tokens),
            ("vllm:prefix_cache_queries", "Tokens looked up.", reading.num_prefix_queries),
            ("vllm:prefix_cache_hits", "Tokens found cached.", reading.num_prefix_hits),
            ("headway:engine_steps", "Iterations.", reading.num_steps),
            ("headway:batched_tokens", "Tokens computed.", reading.num_batched_tokens),
            ("headway:engine_busy_seconds", "Seconds spent in iterations.", reading.busy_s),
            ("headway:step_seconds", "Seconds of predicted iterations.", reading.step_s),
            ("headway:step_predicted_seconds", "The prediction.", reading.predicted_s),
            ("headway:late_steps", "Iterations over the prediction.", reading.num_late_steps),
        ):
            family = CounterMetricFamily(name, text, labels=_LABELS)
            family.add_metric(self._labels, value)
            yield family
        success = CounterMetricFamily(
            "vllm:request_success",
            "Sequences that ended, by reason.",
            labels=(*_LABELS, "finished_reason"),
        )
        for reason in sorted({"stop", "length", "abort", "error", *reading.num_finished}):
            success.add_metric((*self._labels, reason), reading.num_finished.get(reason, 0))
        yield success

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family
