"""Where do the scheduler's numbers appear on vLLM's `/metrics`?

vLLM's engine process hands its statistics to the API server, which gives them to every logger of
the entry point `vllm.stat_logger_plugins`. This one turns ours (`counters.py`) into Prometheus
metrics beside vLLM's own, and does nothing where another scheduler runs. That it is there makes
vLLM keep statistics all the same: vLLM looks for loggers before it says which scheduler runs.
"""

from typing import Any

from prometheus_client import Counter, Gauge
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from headway.vllm_plugin.counters import METRICS, PREFIX, Metric, decode
from headway.vllm_plugin.register import is_ours

_registered: dict[str, Any] = {}


class QoSStatLogger(AggregateStatLoggerBase):
    """Exports what `QoSScheduler` reports, by tier."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._active = is_ours(vllm_config.scheduler_config.scheduler_cls)
        self._model_name = vllm_config.model_config.served_model_name
        if self._active:
            for metric in METRICS:
                _registered[metric.name] = _registered.get(metric.name) or _new(metric)
            # Told before anything runs: a gateway sends by it from the first request on.
            config = vllm_config.scheduler_config
            active = config.max_num_active_seqs
            slots = config.max_num_seqs if active is None else active
            for index in engine_indexes:
                _registered["max_num_seqs"].labels(self._model_name, str(index)).set(slots)

    def record(
        self,
        scheduler_stats: Any,
        iteration_stats: Any,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        """Take one report of one engine."""
        if not self._active or scheduler_stats is None:
            return
        for metric, tier, value in decode(scheduler_stats.waiting_lora_adapters):
            labels = [self._model_name, str(engine_idx), *([tier] if metric.by_tier else [])]
            child = _registered[metric.name].labels(*labels)
            if metric.is_gauge:
                child.set(value)
            else:
                child.inc(value)

    def log_engine_initialized(self) -> None:
        """Say nothing: the scheduler has."""


def _new(metric: Metric) -> Any:
    labels = ["model_name", "engine", *(["tier"] if metric.by_tier else [])]
    name = f"{PREFIX}{metric.name}"
    if metric.is_gauge:
        return Gauge(name, metric.help, labels, multiprocess_mode="mostrecent")
    return Counter(name, metric.help, labels)
