"""Does whatever a plan may hold fit into a step of vLLM, drafts and all, and is a step filled?"""

from hypothesis import assume, given
from hypothesis import strategies as st

from headway.vllm_plugin.size import most_tokens


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40)), max_size=40),
    st.lists(st.integers(0, 40), max_size=10),
    st.integers(0, 16),
    st.integers(1, 400),
    st.integers(0, 100),
)
def test_a_plan_fits_with_its_drafts_and_their_slots(
    running: list[tuple[int, int]],
    admitted: list[int],
    slots_of_one: int,
    scheduled: int,
    more_inputs: int,
) -> None:
    """Of each that runs: drafts, and tokens that the plan computes; of each admitted those."""
    inputs = scheduled + more_inputs
    drafts = [number for number, _ in running]
    slots = slots_of_one * (len(running) + len(admitted))
    most = most_tokens(scheduled, inputs, drafts, slots, slots_of_one)
    planned = [(tokens, number) for number, tokens in running] + [(n, 0) for n in admitted]
    planned = [(tokens, number) for tokens, number in planned if tokens]
    assume(sum(tokens for tokens, _ in planned) <= most and most > 1)
    with_drafts = sum(tokens + number for tokens, number in planned)
    assert with_drafts <= scheduled
    assert with_drafts + slots_of_one * len(planned) <= inputs


def test_a_step_is_filled_though_not_everybody_fits_with_all_drafts() -> None:
    assert most_tokens(2048, 2048, [24] * 80, 0, 0) == 128
    assert most_tokens(2048, 2048, [24] * 100, 0, 0) == 81
    assert most_tokens(2048, 2048, [0] * 99 + [24], 0, 0) == 2024
    assert most_tokens(8192, 8192, [15] * 300, 15 * 300, 15) == 264


def test_there_is_always_a_token() -> None:
    assert most_tokens(4, 4, [8, 8], 0, 0) == 1
