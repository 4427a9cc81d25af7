"""Does the step time follow from what the step computes?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.predictor import StepCoefficients, StepFeatures

COEFFICIENTS = st.builds(StepCoefficients, *(st.floats(0, 1, allow_nan=False) for _ in range(7)))
PREFILLS = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 4096)), max_size=4)
CONTEXTS = st.lists(st.integers(0, 4096), max_size=8)


def features_of(prefills: list[tuple[int, int]], contexts: list[int]) -> StepFeatures:
    features = StepFeatures()
    for num_tokens, context in prefills:
        features = features.plus_prefill(num_tokens, context)
    for context in contexts:
        features = features.plus_decode(context)
    return features


@given(PREFILLS, CONTEXTS)
def test_features_count_what_was_added(
    prefills: list[tuple[int, int]], contexts: list[int]
) -> None:
    features = features_of(prefills, contexts)
    assert features.num_tokens == sum(n for n, _ in prefills) + len(contexts)
    assert (features.num_prefills, features.num_decodes) == (len(prefills), len(contexts))
    assert features.decode_context == sum(contexts)
    assert features.prefill_context == sum(context for _, context in prefills)


def test_a_prompt_cut_into_chunks_is_the_same_work() -> None:
    whole = StepFeatures().plus_prefill(300, 0)
    halves = StepFeatures().plus_prefill(100, 0).plus_prefill(200, 100)
    assert halves.prefill_work == whole.prefill_work


@given(COEFFICIENTS, PREFILLS, CONTEXTS, st.integers(1, 512), st.integers(0, 4096))
def test_i11_more_work_never_takes_less_time(
    coefficients: StepCoefficients,
    prefills: list[tuple[int, int]],
    contexts: list[int],
    num_tokens: int,
    context: int,
) -> None:
    features = features_of(prefills, contexts)
    time_s = coefficients.time_s(features)
    assert time_s >= coefficients.base_s
    assert coefficients.time_s(features.plus_decode(context)) >= time_s
    assert coefficients.time_s(features.plus_prefill(num_tokens, context)) >= time_s


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf")])
def test_a_coefficient_is_a_number_of_at_least_zero(value: float) -> None:
    with pytest.raises(ValueError, match=r"^decode_context_s must be"):
        StepCoefficients(0.01, decode_context_s=value)


@given(
    COEFFICIENTS,
    st.floats(0, 10, allow_nan=False),
    st.integers(0, 4096),
    st.integers(0, 600),
    st.integers(0, 3),
)
def test_i11_a_chunk_is_the_largest_that_fits(
    coefficients: StepCoefficients, seconds: float, context: int, most: int, planned: int
) -> None:
    context += planned
    num_tokens = coefficients.tokens_within(seconds, context, most, planned=planned)
    assert 0 <= num_tokens <= most
    if num_tokens > 0:
        assert coefficients.slice_s(num_tokens, context, planned=planned) <= seconds
    if num_tokens < most:
        assert coefficients.slice_s(num_tokens + 1, context, planned=planned) > seconds


@given(COEFFICIENTS, PREFILLS, st.integers(0, 4096), st.integers(1, 300), st.integers(1, 300))
def test_what_a_slice_adds_is_the_difference_it_makes(
    coefficients: StepCoefficients,
    prefills: list[tuple[int, int]],
    context: int,
    first: int,
    second: int,
) -> None:
    before = features_of(prefills, [])
    after = before.plus_decode(context) if first == 1 else before.plus_prefill(first, context)
    added = coefficients.time_s(after) - coefficients.time_s(before)
    assert added == pytest.approx(coefficients.slice_s(first, context), rel=1e-6, abs=1e-6)
    longer = before.plus_prefill(first + second, context)
    whole = coefficients.time_s(longer) - coefficients.time_s(after)
    rest = coefficients.slice_s(second, context + first, planned=first)
    assert rest == pytest.approx(whole, rel=1e-6, abs=1e-6)
