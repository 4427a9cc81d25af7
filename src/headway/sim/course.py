"""How did one tier fare over time?"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from headway.core.outcome import Outcome
from headway.sim.records import OUTCOMES, Recorder

MOST_SPANS = 200
Span = tuple[int, int]
Numbers = NDArray[np.float64]


class Course(Struct, frozen=True, kw_only=True):
    """One tier over time, a value for each span; None where nothing was to be seen."""

    ttft_p99_s: list[float | None]
    """Of the requests that arrived in the span and got a token."""
    num_unanswered: list[int]
    """Of the requests that arrived in the span, those that never got a token, though their clients
    stayed."""
    tokens_per_s: list[float]
    waiting: list[int]
    """At the end of the span."""


def course_spans(num_seconds: int) -> list[Span]:
    """Return at most `MOST_SPANS` spans of whole seconds, the last one as long as is left."""
    length = max(1, -(-num_seconds // MOST_SPANS))
    return [(start, min(start + length, num_seconds)) for start in range(0, num_seconds, length)]


def course(recorder: Recorder, rank: int, spans: list[Span]) -> Course:
    """Return the course of the tier of `rank`."""
    rows = recorder.rows
    mine = np.array(rows.rank) == rank
    stayed = np.array(rows.outcome) != OUTCOMES.index(Outcome.CANCELLED)
    arrival, ttft_s = np.array(rows.arrival), np.array(rows.ttft_s)
    answered, unanswered = mine & (ttft_s >= 0), mine & (ttft_s < 0) & stayed
    found = _by_span(arrival[answered], ttft_s[answered], spans)
    seconds = recorder.seconds
    return Course(
        ttft_p99_s=[float(np.percentile(each, 99)) if len(each) else None for each in found],
        num_unanswered=[
            len(each) for each in _by_span(arrival[unanswered], ttft_s[unanswered], spans)
        ],
        tokens_per_s=[
            sum(each.tokens[rank] for each in seconds[start:end]) / (end - start)
            for start, end in spans
        ],
        waiting=[seconds[end - 1].waiting[rank] for _, end in spans],
    )


def _by_span(arrival: Numbers, values: Numbers, spans: list[Span]) -> list[Numbers]:
    """Return the values of those that arrived in each span."""
    order = np.argsort(arrival, kind="stable")
    arrival, values = arrival[order], values[order]
    cuts = [np.searchsorted(arrival, span) for span in spans]
    return [values[start:end] for start, end in cuts]
