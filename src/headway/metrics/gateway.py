"""What does the gateway measure, and under which names?

Durations are seconds from the arrival of the request at the gateway, so that time in the queue is
part of them. Gauges are read from the live state at each scrape; nothing is counted up and down.
Label values from outside are bounded: models that are served or `unknown`, a limited number of
tenants and `other`. Everything is touched by the event loop alone, so there are no locks.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headway.core.outcome import Outcome
from headway.metrics.buckets import ITL_BUCKETS_S, LATENCY_BUCKETS_S, TTFT_BUCKETS_S

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
NOBODY = "none"
"""Label of a tier or tenant that was not found out before the request ended."""
OTHER = "other"
UNKNOWN_MODEL = "unknown"

_Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeReading:
    """One node at the moment of a scrape; `inflight` by rank."""

    name: str
    up: bool
    limit: int
    inflight: Sequence[int]


@dataclass(frozen=True, slots=True)
class Reading:
    """The gateway at the moment of a scrape; queues by rank."""

    queue_depth: Sequence[int]
    queue_tokens: Sequence[int]
    wait_estimates: Sequence[int]
    """Predicted waits whose outcome is known, since the start."""
    waits_within_p90: Sequence[int]
    nodes: Sequence[NodeReading]
    desired_replicas: int


class BoundedLabels:
    """Label values that come from outside: the first `limit` keep their own, others share one.

    A value that has its own series keeps it for ever, because a counter must not fall.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = {NOBODY}

    def label(self, value: str) -> str:
        """Return the label for `value`."""
        if value in self._known:
            return value
        if len(self._known) > self._limit:
            return OTHER
        self._known.add(value)
        return value


class Histogram:
    """Observations by label values, in fixed buckets."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._bounds = bounds
        self._counts: dict[_Labels, list[int]] = {}
        self._sums: dict[_Labels, float] = {}

    def observe(self, labels: _Labels, value: float) -> None:
        """Count `value`; a bucket holds what is at most its bound."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[labels] += value

    def collect(self) -> Metric:
        """Return the family, with cumulative buckets."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        for labels, counts in self._counts.items():
            total = 0
            buckets: list[tuple[str, float]] = []
            for name, count in zip(names, counts, strict=True):
                total += count
                buckets.append((name, total))
            family.add_metric(labels, buckets, self._sums[labels])
        return family


class _Counter:
    """Counts by label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts: defaultdict[_Labels, int] = defaultdict(int)

    def add(self, labels: _Labels, amount: int = 1) -> None:
        self._counts[labels] += amount

    def collect(self) -> Metric:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        return family


class GatewayMetrics(Collector):
    """Every metric of one gateway.

    `tier_names` by rank; `models` tells which are served now; `read` is called at each scrape.
    """

    def __init__(
        self,
        tier_names: Sequence[str],
        *,
        top_tenants: int,
        models: Callable[[], frozenset[str]],
        read: Callable[[], Reading],
    ) -> None:
        self._tier_names = tuple(tier_names)
        self._tenants = BoundedLabels(top_tenants)
        self._models = models
        self._read = read
        by_tier = ("tier",)
        who = ("tier", "tenant", "model")
        self._queue_wait = Histogram(
            "headway_queue_wait_seconds",
            "Time in the gateway's queue, by how it ended.",
            ("tier", "outcome"),
            TTFT_BUCKETS_S,
        )
        self._ttft = Histogram(
            "headway_time_to_first_token_seconds",
            "Time from arrival to the first streamed content.",
            by_tier,
            TTFT_BUCKETS_S,
        )
        self._itl = Histogram(
            "headway_inter_token_latency_seconds",
            "Time between two streamed pieces of content.",
            by_tier,
            ITL_BUCKETS_S,
        )
        self._e2e = Histogram(
            "headway_e2e_request_latency_seconds",
            "Time from arrival to the end of a completed request.",
            by_tier,
            LATENCY_BUCKETS_S,
        )
        self._requests = _Counter(
            "headway_requests", "Requests by how they ended.", (*who, "outcome")
        )
        self._prompt_tokens = _Counter("headway_prompt_tokens", "Prompt tokens served.", who)
        self._output_tokens = _Counter("headway_generation_tokens", "Generated tokens.", who)
        self._downgrades = _Counter(
            "headway_tier_downgrades", "Requests served below the tier asked.", ("asked", "used")
        )
        self._retries = _Counter(
            "headway_node_retries", "Requests that a node failed to start, sent again.", ("node",)
        )
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def queued(self, rank: int, wait_s: float, outcome: str) -> None:
        """A wait in the queue ended: `dispatched`, `cancelled` or `evicted`."""
        self._queue_wait.observe((self._tier_names[rank], outcome), wait_s)

    def first_token(self, rank: int, ttft_s: float) -> None:
        """The first streamed content was sent."""
        self._ttft.observe((self._tier_names[rank],), ttft_s)

    def next_token(self, rank: int, gap_s: float) -> None:
        """Further streamed content was sent."""
        self._itl.observe((self._tier_names[rank],), gap_s)

    def downgraded(self, asked: int, used: int) -> None:
        """A request asked for more than its key allows."""
        self._downgrades.add((self._tier_names[asked], self._tier_names[used]))

    def retried(self, node: str) -> None:
        """A node failed before the first byte; the request is sent again."""
        self._retries.add((node,))

    def finished(
        self,
        outcome: Outcome,
        *,
        rank: int | None,
        tenant: str | None,
        model: str | None,
        e2e_s: float,
        prompt_tokens: int,
        output_tokens: int,
    ) -> None:
        """A request ended. `rank`, `tenant` and `model` are None when they never became known."""
        tier = NOBODY if rank is None else self._tier_names[rank]
        labels = (
            tier,
            NOBODY if tenant is None else self._tenants.label(tenant),
            self._model_label(model),
        )
        self._requests.add((*labels, outcome.value))
        if prompt_tokens or output_tokens:
            self._prompt_tokens.add(labels, prompt_tokens)
            self._output_tokens.add(labels, output_tokens)
        if outcome is Outcome.COMPLETED:
            self._e2e.observe((tier,), e2e_s)

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield every family; called by the registry."""
        yield from self._gauges(self._read())
        for histogram in (self._queue_wait, self._ttft, self._itl, self._e2e):
            yield histogram.collect()
        for counter in (
            self._requests,
            self._prompt_tokens,
            self._output_tokens,
            self._downgrades,
            self._retries,
        ):
            yield counter.collect()

    def _gauges(self, now: Reading) -> Iterator[Metric]:
        depth = GaugeMetricFamily("headway_queue_depth", "Requests queued.", labels=["tier"])
        tokens = GaugeMetricFamily(
            "headway_queue_tokens", "Estimated tokens queued.", labels=["tier"]
        )
        for rank, tier in enumerate(self._tier_names):
            depth.add_metric([tier], now.queue_depth[rank])
            tokens.add_metric([tier], now.queue_tokens[rank])
        yield depth
        yield tokens
        yield from self._estimates(now)
        up = GaugeMetricFamily("headway_node_up", "1 when work is sent there.", labels=["node"])
        limit = GaugeMetricFamily(
            "headway_node_limit", "Most requests in flight at a node.", labels=["node"]
        )
        inflight = GaugeMetricFamily(
            "headway_inflight", "Requests in flight at a node.", labels=["node", "tier"]
        )
        for node in now.nodes:
            up.add_metric([node.name], float(node.up))
            limit.add_metric([node.name], node.limit)
            for rank, tier in enumerate(self._tier_names):
                inflight.add_metric([node.name, tier], node.inflight[rank])
        desired = GaugeMetricFamily("headway:desired_replicas", "How many nodes it would take.")
        desired.add_metric([], now.desired_replicas)
        yield from (up, limit, inflight, desired)

    def _estimates(self, now: Reading) -> Iterator[Metric]:
        told = CounterMetricFamily(
            "headway_wait_estimates", "Predicted waits in the queue that are over.", labels=["tier"]
        )
        kept = CounterMetricFamily(
            "headway_wait_within_p90", "Those of them within the predicted p90.", labels=["tier"]
        )
        for rank, tier in enumerate(self._tier_names):
            told.add_metric([tier], now.wait_estimates[rank])
            kept.add_metric([tier], now.waits_within_p90[rank])
        yield from (told, kept)

    def _model_label(self, model: str | None) -> str:
        if model is None:
            return NOBODY
        return model if model in self._models() else UNKNOWN_MODEL
