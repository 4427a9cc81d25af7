"""Is the order inside a flow static, deadline-aware, and without starvation?"""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.ordering import MAX_LENGTH_FACTOR, UNTARGETED_DUE_S, order_key

TIMES = st.floats(0, 1e6)
TARGETS = st.none() | st.floats(0.01, 100)
DEADLINES = st.none() | st.floats(0, 2e6)
TOKENS = st.integers(0, 10**7)


def test_a_request_is_due_at_its_target_and_long_prompts_a_little_later() -> None:
    assert order_key(10.0, ttft_s=2.0, deadline=None, prompt_tokens=0) == 12.0
    assert order_key(10.0, ttft_s=2.0, deadline=None, prompt_tokens=1000) == 13.0
    assert order_key(10.0, ttft_s=None, deadline=None, prompt_tokens=0) == 10.0 + UNTARGETED_DUE_S


@given(TIMES, TARGETS, DEADLINES, TOKENS)
def test_a_deadline_only_moves_forward_and_length_is_bounded(
    arrival: float, ttft_s: float | None, deadline: float | None, tokens: int
) -> None:
    key = order_key(arrival, ttft_s=ttft_s, deadline=deadline, prompt_tokens=tokens)
    without = order_key(arrival, ttft_s=ttft_s, deadline=None, prompt_tokens=tokens)
    assert key <= without
    assert deadline is None or key <= deadline
    horizon = UNTARGETED_DUE_S if ttft_s is None else ttft_s
    assert without <= arrival + (1 + MAX_LENGTH_FACTOR) * horizon + 1e-6


@given(TIMES, TARGETS, TOKENS, st.floats(0, 1e6), DEADLINES, TOKENS)
def test_g4_what_arrives_after_the_key_stands_behind(
    arrival: float,
    ttft_s: float | None,
    tokens: int,
    later_s: float,
    slack_s: float | None,
    later_tokens: int,
) -> None:
    """G4, queue side: whoever arrives when the key has passed does not overtake."""
    key = order_key(arrival, ttft_s=ttft_s, deadline=None, prompt_tokens=tokens)
    after = key + later_s
    deadline = None if slack_s is None else after + slack_s
    later = order_key(after, ttft_s=ttft_s, deadline=deadline, prompt_tokens=later_tokens)
    assert later >= key
