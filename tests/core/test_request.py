"""Is the table of states complete, and is every other step refused?"""

import pytest

from headway.core.request import TRANSITIONS, Event, RequestState, next_state

LIVES = """
waiting admit running, waiting abort aborted
running preempt preempted, running finish finished, running abort aborted
preempted admit running, preempted abort aborted
"""
LEGAL = {
    (RequestState(before), Event(event)): RequestState(after)
    for before, event, after in (row.split() for row in LIVES.strip().replace("\n", ",").split(","))
}


@pytest.mark.parametrize("state", RequestState)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_legal_or_refused(state: RequestState, event: Event) -> None:
    if (state, event) in LEGAL:
        assert next_state(state, event) is LEGAL[state, event]
    else:
        with pytest.raises(ValueError, match=f"{event} is not possible in state {state}"):
            next_state(state, event)


def test_every_state_can_be_reached_and_all_but_two_have_a_row_and_can_end() -> None:
    reached = {RequestState.WAITING}
    for _ in RequestState:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(RequestState)
    left = {before for before, _ in TRANSITIONS}
    assert set(RequestState) - left == {RequestState.FINISHED, RequestState.ABORTED}
    for state in left:
        assert TRANSITIONS[state, Event.ABORT] is RequestState.ABORTED
