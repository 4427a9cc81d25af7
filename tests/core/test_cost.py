"""Are costs linear in tokens by kind, and estimates within their bounds?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.cost import (
    DEFAULT_OUTPUT_TOKENS,
    MAX_FLOWS_REMEMBERED,
    OutputEstimator,
    Prices,
    estimate_prompt_tokens,
    request_cost,
)


def test_prefill_decode_and_cache_hits_are_priced_apart() -> None:
    prices = Prices(prefill=1.0, decode=2.0, cached=0.25)
    assert request_cost(prices, 100, 0) == 100
    assert request_cost(prices, 100, 10) == 120
    assert request_cost(prices, 100, 10, num_cached_tokens=80) == 60


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.data())
def test_more_work_never_costs_less(prompt: int, output: int, data: st.DataObject) -> None:
    cached = data.draw(st.integers(0, prompt - 1))
    cost = request_cost(Prices(), prompt, output, cached)
    assert 0 < cost < request_cost(Prices(), prompt + 1, output, cached)
    assert cost < request_cost(Prices(), prompt, output + 1, cached)
    assert cost > request_cost(Prices(), prompt, output, cached + 1)


@pytest.mark.parametrize(("prompt", "output", "cached"), [(-1, 0, 0), (1, -1, 0), (1, 0, 2)])
def test_impossible_counts_are_refused(prompt: int, output: int, cached: int) -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        request_cost(Prices(), prompt, output, cached)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prefill": 0.0},
        {"decode": -1.0},
        {"cached": -0.1},
        {"prefill": float("nan")},
        {"decode": float("inf")},
    ],
)
def test_prices_that_make_work_free_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Prices(**wrong)


def test_prompt_tokens_from_bytes() -> None:
    assert [estimate_prompt_tokens(size) for size in (0, 1, 36, 37)] == [1, 1, 10, 11]
    with pytest.raises(ValueError, match="negative"):
        estimate_prompt_tokens(-1)


def test_a_new_flow_is_taken_to_be_of_default_length_within_max_tokens() -> None:
    estimator = OutputEstimator()
    assert estimator.expected(1, "a", None) == DEFAULT_OUTPUT_TOKENS
    assert estimator.expected(1, "a", 16) == 16
    assert estimator.expected(1, "a", 100_000) == DEFAULT_OUTPUT_TOKENS


def test_the_estimate_is_the_flows_own_mean() -> None:
    estimator = OutputEstimator()
    for tokens in (10, 20, 30):
        estimator.observe(2, "a", tokens)
    assert estimator.expected(2, "a", None) == 20
    assert estimator.expected(2, "a", 5) == 5
    assert estimator.expected(1, "a", None) == DEFAULT_OUTPUT_TOKENS
    assert estimator.expected(2, "b", None) == DEFAULT_OUTPUT_TOKENS


def test_the_estimate_follows_a_change() -> None:
    estimator = OutputEstimator()
    for _ in range(100):
        estimator.observe(1, "a", 1000)
    for _ in range(50):
        estimator.observe(1, "a", 10)
    assert estimator.expected(1, "a", None) < 20
    with pytest.raises(ValueError, match="negative"):
        estimator.observe(1, "a", -1)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=40))
def test_the_estimate_stays_within_what_was_seen(seen: list[int]) -> None:
    estimator = OutputEstimator()
    for tokens in seen:
        estimator.observe(1, "a", tokens)
    assert max(1, min(seen)) <= estimator.expected(1, "a", None) <= max(1, max(seen))


def test_memory_is_bounded_and_the_stale_go_first() -> None:
    estimator = OutputEstimator()
    for number in range(MAX_FLOWS_REMEMBERED):
        estimator.observe(1, f"t{number}", 7)
    estimator.observe(1, "t0", 7)
    for number in range(100):
        estimator.observe(1, f"new{number}", 7)
    assert len(estimator) == MAX_FLOWS_REMEMBERED
    assert estimator.expected(1, "t0", None) == 7
    assert estimator.expected(1, "t1", None) == DEFAULT_OUTPUT_TOKENS
