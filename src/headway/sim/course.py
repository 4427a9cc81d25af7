"""How did one tier fare over time?"""

import numpy as np
from msgspec import Struct

from headway.sim.records import Recorder

MOST_SPANS = 200
Span = tuple[int, int]


class Course(Struct, frozen=True, kw_only=True):
    """One tier over time, a value for each span; None where nothing was to be seen."""

    ttft_p99_s: list[float | None]
    """Of the requests that arrived in the span."""
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
    mine = (np.array(rows.rank) == rank) & (np.array(rows.ttft_s) >= 0)
    arrival, ttft_s = np.array(rows.arrival)[mine], np.array(rows.ttft_s)[mine]
    order = np.argsort(arrival, kind="stable")
    arrival, ttft_s = arrival[order], ttft_s[order]
    cuts = [np.searchsorted(arrival, span) for span in spans]
    found = [ttft_s[start:end] for start, end in cuts]
    seconds = recorder.seconds
    return Course(
        ttft_p99_s=[float(np.percentile(each, 99)) if len(each) else None for each in found],
        tokens_per_s=[
            sum(each.tokens[rank] for each in seconds[start:end]) / (end - start)
            for start, end in spans
        ],
        waiting=[seconds[end - 1].waiting[rank] for _, end in spans],
    )
