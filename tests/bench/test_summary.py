"""Are the figures those that a hand calculation gives?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.bench.load import Load
from headway.bench.records import RequestRecord
from headway.bench.summary import middle, percentile, summarize, tokens_between

LOAD = Load(duration_s=20.0, warmup_s=10.0)


def record(sent_s: float, *chunk_s: float, output: int = 0, tier: str = "bulk") -> RequestRecord:
    """A finished request whose pieces came at those times."""
    return RequestRecord(
        tier=tier,
        sent_s=sent_s,
        chunk_s=list(chunk_s),
        num_prompt_tokens=400,
        num_output_tokens=output or len(chunk_s),
        finished=True,
    )


def test_percentiles_by_hand() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 0.0) == 1.0
    assert percentile(values, 0.5) == 2.5
    assert percentile(values, 0.9) == pytest.approx(3.7)
    assert percentile(values, 1.0) == 4.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.5) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_percentiles_lie_within_the_values_and_rise(values: list[float], share: float) -> None:
    at = percentile(values, share)
    top = percentile(values, 1.0)
    assert at is not None
    assert top == max(values)
    assert min(values) <= at <= max(values)


def test_only_requests_sent_in_the_counted_part_count() -> None:
    records = [
        record(9.0, 11.0, 12.0),
        record(10.0, 10.5, 11.0, 13.0),
        record(19.0, 22.0),
        record(20.0, 20.1),
        record(12.0, 13.0, tier="critical"),
    ]
    got = summarize(records, "bulk", LOAD)
    assert (got.num_requests, got.num_finished, got.num_errors) == (2, 2, 0)
    # TTFTs 0.5 and 3.0; gaps 0.5 and 2.0.
    assert got.ttft_p50_s == pytest.approx(1.75)
    assert got.ttft_p90_s == pytest.approx(2.75)
    assert got.ttft_p99_s == pytest.approx(2.975)
    assert got.gap_p50_s == pytest.approx(1.25)
    # In [10, 20): two pieces of the first request and three of the second, in 10 s.
    assert got.tokens_per_s == pytest.approx(0.5)
    assert got.prompt_tokens_mean == 400
    assert got.output_tokens_mean == pytest.approx(2.0)


def test_pieces_of_several_tokens_count_as_what_the_usage_says() -> None:
    # 12 tokens in 3 pieces, one of them in time.
    assert tokens_between([record(0, 1.0, 5.0, 6.0, output=12)], 0.5, 4.0) == pytest.approx(4.0)
    unfinished = RequestRecord(tier="bulk", sent_s=0, chunk_s=[1.0, 2.0])
    assert tokens_between([unfinished], 0.0, 4.0) == 2.0


def test_errors_and_given_up_requests_show() -> None:
    waiting = RequestRecord(tier="bulk", sent_s=11.0, waited_s=30.0)
    failed = RequestRecord(tier="bulk", sent_s=11.0, error="503")
    got = summarize([waiting, failed], "bulk", LOAD)
    assert (got.num_requests, got.num_finished) == (2, 0)
    assert (got.num_errors, got.num_unanswered) == (1, 1)
    assert got.ttft_p99_s == 30.0
    assert got.gap_p50_s is None
    assert got.tokens_per_s == 0


def test_repeats_give_medians_and_added_counts() -> None:
    runs = [summarize([record(10.0, 10.0 + ttft)], "bulk", LOAD) for ttft in (0.5, 9.0, 1.0)]
    got = middle(runs)
    assert got.ttft_p99_s == pytest.approx(1.0)
    assert got.num_requests == 3
    with pytest.raises(ValueError, match="no run"):
        middle([])
