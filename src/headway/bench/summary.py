"""What do the records of a phase say?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor
from statistics import mean, median

from headway.bench.load import Load
from headway.bench.records import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSummary:
    """One tier in the counted part of a phase. None where nothing was measured."""

    num_requests: int
    """Sent in the counted part."""
    num_finished: int
    num_errors: int
    num_unanswered: int
    """Given up before their first token; their wait stands for it, as a lower bound."""
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    gap_p50_s: float | None
    gap_p99_s: float | None
    tokens_per_s: float
    """Output tokens that arrived in the counted part, from requests sent before it too."""
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which `share` (0 to 1) lies, interpolated; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def summarize(records: Sequence[RequestRecord], tier: str, load: Load) -> TierSummary:
    """Return what the requests of `tier` saw between the warm-up and the end of the phase."""
    start, end = load.warmup_s, load.duration_s
    mine = [record for record in records if record.tier == tier]
    sent = [record for record in mine if start <= record.sent_s < end]
    ttfts = [record.ttft_s for record in sent if record.ttft_s is not None]
    ended = [record for record in sent if record.finished]
    gaps = [later - earlier for record in sent for earlier, later in pairwise(record.chunk_s)]
    return TierSummary(
        num_requests=len(sent),
        num_finished=len(ended),
        num_errors=sum(record.error is not None for record in sent),
        num_unanswered=sum(record.waited_s is not None for record in sent),
        ttft_p50_s=percentile(ttfts, 0.5),
        ttft_p90_s=percentile(ttfts, 0.9),
        ttft_p99_s=percentile(ttfts, 0.99),
        gap_p50_s=percentile(gaps, 0.5),
        gap_p99_s=percentile(gaps, 0.99),
        tokens_per_s=tokens_between(mine, start, end) / (end - start),
        prompt_tokens_mean=_mean([record.num_prompt_tokens for record in ended]),
        output_tokens_mean=_mean([record.num_output_tokens for record in ended]),
    )


def tokens_between(records: Sequence[RequestRecord], start_s: float, end_s: float) -> float:
    """Return how many output tokens arrived in that time."""
    return sum(
        record.tokens_per_chunk * sum(start_s <= at < end_s for at in record.chunk_s)
        for record in records
    )


def middle(summaries: Sequence[TierSummary]) -> TierSummary:
    """Return the medians of repeated runs; counts are added up. Raises ValueError of nothing."""
    if not summaries:
        raise ValueError("no run to take the middle of")
    return TierSummary(
        num_requests=sum(s.num_requests for s in summaries),
        num_finished=sum(s.num_finished for s in summaries),
        num_errors=sum(s.num_errors for s in summaries),
        num_unanswered=sum(s.num_unanswered for s in summaries),
        ttft_p50_s=_median([s.ttft_p50_s for s in summaries]),
        ttft_p90_s=_median([s.ttft_p90_s for s in summaries]),
        ttft_p99_s=_median([s.ttft_p99_s for s in summaries]),
        gap_p50_s=_median([s.gap_p50_s for s in summaries]),
        gap_p99_s=_median([s.gap_p99_s for s in summaries]),
        tokens_per_s=median(s.tokens_per_s for s in summaries),
        prompt_tokens_mean=_median([s.prompt_tokens_mean for s in summaries]),
        output_tokens_mean=_median([s.output_tokens_mean for s in summaries]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
