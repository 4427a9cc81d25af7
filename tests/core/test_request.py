"""Is the table of states complete, and is every other step refused?"""

import pytest

from headway.core.request import TRANSITIONS, Event, RequestState, next_state

LEGAL = {
    (RequestState.WAITING, Event.ADMIT): RequestState.RUNNING,
    (RequestState.WAITING, Event.ABORT): RequestState.ABORTED,
    (RequestState.RUNNING, Event.PREEMPT): RequestState.PREEMPTED,
    (RequestState.RUNNING, Event.FINISH): RequestState.FINISHED,
    (RequestState.RUNNING, Event.ABORT): RequestState.ABORTED,
    (RequestState.PREEMPTED, Event.ADMIT): RequestState.RUNNING,
    (RequestState.PREEMPTED, Event.ABORT): RequestState.ABORTED,
}


@pytest.mark.parametrize("state", RequestState)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_legal_or_refused(state: RequestState, event: Event) -> None:
    if (state, event) in LEGAL:
        assert next_state(state, event) is LEGAL[state, event]
    else:
        with pytest.raises(ValueError, match=f"{event} is not possible in state {state}"):
            next_state(state, event)


def test_every_state_has_a_row_can_be_reached_and_can_end() -> None:
    assert set(TRANSITIONS) == set(RequestState)
    reached = {RequestState.WAITING}
    for _ in RequestState:
        reached |= {after for state in reached for after in TRANSITIONS[state].values()}
    assert reached == set(RequestState)
    terminal = {state for state, row in TRANSITIONS.items() if not row}
    assert terminal == {RequestState.FINISHED, RequestState.ABORTED}
    for state in set(RequestState) - terminal:
        assert TRANSITIONS[state][Event.ABORT] is RequestState.ABORTED
