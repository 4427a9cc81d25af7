"""What does a node's /metrics page say of its load?

vLLM's names, which our own engine uses as well. A node of several engines is their sum, and as full
as the fullest. A page may lack any of them: what is missing stays untold.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from headway.flowcontrol.meter import NodeReport

QUEUE_PERCENTILE = 0.95

_QUEUE_TIME = b"vllm:request_queue_time_seconds"
_SERIES = re.compile(
    rb"^(headway:max_num_seqs|vllm:num_requests_waiting|vllm:kv_cache_usage_perc"
    rb"|vllm:num_preemptions(?:_total)?|vllm:request_queue_time_seconds_(?:bucket|sum|count))"
    rb'(\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*\})? ([^\s]+)',
    re.MULTILINE,
)
_BOUND = re.compile(rb'[{,]le="([^"]*)"')


@dataclass(frozen=True, slots=True)
class NodePage:
    """The figures of one page; counters since the node's start. None: not on it."""

    max_num_seqs: int | None = None
    """Only headway's own nodes tell."""
    num_waiting: float | None = None
    kv_used: float | None = None
    num_preemptions: float | None = None
    queue_counts: Mapping[float, float] = field(default_factory=dict)
    """Requests whose wait inside the node was at most so many seconds."""
    queue_sum_s: float = 0.0


def read_page(page: bytes) -> NodePage:
    """Return what the text says; lines that make no sense count as missing."""
    values: defaultdict[bytes, list[float]] = defaultdict(list)
    counts: defaultdict[float, float] = defaultdict(float)
    for name, labels, text in _SERIES.findall(page):
        value = _number(text)
        if value is None:
            continue
        if name == _QUEUE_TIME + b"_bucket":
            bound = _BOUND.search(labels)
            limit = None if bound is None else _number(bound[1], finite=False)
            if limit is not None:
                counts[limit] += value
        else:
            values[name.removesuffix(b"_total")].append(value)
    slots = values[b"headway:max_num_seqs"]
    return NodePage(
        max_num_seqs=int(sum(slots)) if slots else None,
        num_waiting=_sum(values[b"vllm:num_requests_waiting"]),
        kv_used=max(values[b"vllm:kv_cache_usage_perc"], default=None),
        num_preemptions=_sum(values[b"vllm:num_preemptions"]),
        queue_counts=dict(counts),
        queue_sum_s=sum(values[_QUEUE_TIME + b"_sum"]),
    )


def report_between(before: NodePage | None, page: NodePage) -> NodeReport:
    """Return what happened between two pages of one node; `before` is None for the first."""
    if before is None:
        before = page
    return NodeReport(
        queue_wait_p95_s=_queue_wait_s(before, page),
        num_waiting=None if page.num_waiting is None else int(page.num_waiting),
        kv_used=page.kv_used,
        num_preemptions=_grown(before.num_preemptions, page.num_preemptions),
    )


def _queue_wait_s(before: NodePage, page: NodePage) -> float | None:
    """Return the percentile of the waits that ended in between; None when none did."""
    bounds = sorted(page.queue_counts)
    counts = [page.queue_counts[bound] - before.queue_counts.get(bound, 0.0) for bound in bounds]
    if not counts or counts[-1] <= 0 or min(counts) < 0:
        return None
    wanted, below, lower = QUEUE_PERCENTILE * counts[-1], 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= wanted and count > below:
            if lower == 0.0:
                # The first bucket is wide (0.3 s); the mean says more.
                return min(bound, (page.queue_sum_s - before.queue_sum_s) / counts[-1])
            if bound == inf:
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        below, lower = count, bound
    return None


def _grown(before: float | None, now: float | None) -> int | None:
    """Return by how much a counter grew; one that fell began anew."""
    if now is None:
        return None
    return int(now - before if before is not None and before <= now else now)


def _sum(values: list[float]) -> float | None:
    return sum(values) if values else None


def _number(text: bytes, *, finite: bool = True) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < inf or (not finite and value == inf) else None
