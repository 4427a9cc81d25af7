"""Which state may follow which?

The life of a request inside an engine, as a table. An illegal event is one failed lookup; the order
of the members carries no meaning.
"""

from enum import StrEnum


class RequestState(StrEnum):
    """Where a request stands inside an engine."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    ABORTED = "aborted"


class Event(StrEnum):
    """What moves a request from one state to another."""

    ADMIT = "admit"
    PREEMPT = "preempt"
    FINISH = "finish"
    ABORT = "abort"


TRANSITIONS: dict[tuple[RequestState, Event], RequestState] = {
    (RequestState.WAITING, Event.ADMIT): RequestState.RUNNING,
    (RequestState.WAITING, Event.ABORT): RequestState.ABORTED,
    (RequestState.RUNNING, Event.PREEMPT): RequestState.PREEMPTED,
    (RequestState.RUNNING, Event.FINISH): RequestState.FINISHED,
    (RequestState.RUNNING, Event.ABORT): RequestState.ABORTED,
    (RequestState.PREEMPTED, Event.ADMIT): RequestState.RUNNING,
    (RequestState.PREEMPTED, Event.ABORT): RequestState.ABORTED,
}


def next_state(state: RequestState, event: Event) -> RequestState:
    """Return the state after `event`. Raises ValueError when the table has no such row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ValueError(f"{event} is not possible in state {state}") from None
