"""Who joins, who is shed for it and in which order, and is the hint to retry within limits?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.admission import (
    UNKNOWN_RETRY_AFTER_S,
    Admit,
    Arrival,
    Shed,
    ShedReason,
    admit,
    retry_after_s,
)
from headway.core.backlog import MAX_EVICTIONS, Backlog, QueuedRequest
from headway.core.cost import Prices
from headway.core.decision import Idle
from headway.core.dispatch import Dispatcher
from headway.core.need import UNBOUNDED, Amount
from headway.core.outcome import Outcome
from headway.core.tier import Tiers
from headway.core.wait import WaitEstimate
from tests.core.scenario import PATIENT, request

SECONDS = st.floats(0, 1e9)
NOW = 100.0
WAIT = WaitEstimate(20.0, 30.0)
ALL_OF_Z = tuple(f"z{number}" for number in reversed(range(10)))


def full(tenant: str = "a") -> Backlog:
    """Return a backlog that the tenant has filled."""
    backlog = Backlog(10, 1000)
    for number in range(10):
        backlog.add(request(f"{tenant}{number}", tenant=tenant))
    return backlog


def arrival(
    tenant: str = "b",
    wait: WaitEstimate | None = WAIT,
    expires_at: float | None = None,
    *,
    time_limited: bool = True,
    over_level: bool = False,
    own: Backlog | None = None,
    below: tuple[Backlog, ...] = (),
    excess: int = 0,
) -> Arrival:
    """Return an arrival at a tier with room, unless said otherwise."""
    return Arrival(
        entry=request("new", tenant=tenant),
        wait=wait,
        expires_at=expires_at,
        time_limited=time_limited,
        over_level=over_level,
        own=Backlog(10, 1000) if own is None else own,
        below=below,
        excess=Amount(excess, 0),
    )


def shed(reason: ShedReason, retry_s: float = 30.0) -> Shed:
    return Shed(Outcome.REJECTED_SATURATED, retry_s, reason)


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        (arrival(), Admit((), WAIT)),
        (arrival(wait=None), Admit((), None)),
        # 1. Doomed: by the p50, by a limit of its tier, and by nothing that is not known.
        (arrival(expires_at=NOW + 20.0), shed(ShedReason.DOOMED)),
        (arrival(expires_at=NOW + 20.1), Admit((), WAIT)),
        (arrival(expires_at=NOW + 1.0, time_limited=False), Admit((), WAIT)),
        (arrival(expires_at=NOW, time_limited=False), shed(ShedReason.DOOMED)),
        (arrival(wait=None, expires_at=NOW + 0.1), Admit((), None)),
        (arrival(wait=None, expires_at=NOW), shed(ShedReason.DOOMED, UNKNOWN_RETRY_AFTER_S)),
        (arrival(expires_at=NOW, own=full(), over_level=True), shed(ShedReason.DOOMED)),
        # 2. Lower tiers when the gateway is full, the least urgent first; not for the own bound.
        (arrival(below=(full("z"), full("y")), excess=1), Admit(("z9",), WAIT)),
        (arrival(below=(Backlog(1, 1), full("y")), excess=2), Admit(("y9", "y8"), WAIT)),
        (arrival("a", own=full(), below=(full("z"),)), shed(ShedReason.FULL)),
        (arrival("a", own=full(), below=(full("z"),), excess=1), shed(ShedReason.FULL)),
        (arrival(own=full(), below=(full("z"),)), Admit(("a9",), WAIT)),
        # What the own tier gives for its own bound makes room for the gateway, too.
        (arrival(own=full(), below=(full("z"),), excess=1), Admit(("a9",), WAIT)),
        (arrival(own=full(), below=(full("z"),), excess=3), Admit(("z9", "z8", "a9"), WAIT)),
        # 3. Over-share tenants of the own tier, when nothing less urgent waits.
        (arrival(own=full(), excess=2), Admit(("a9", "a8"), WAIT)),
        (arrival("a", own=full(), excess=1), shed(ShedReason.FULL)),
        # 4. By level, only when it would have had room otherwise.
        (arrival(over_level=True), shed(ShedReason.LEVEL)),
        # 5. Itself: whoever it is, when nobody gives way.
        (arrival(excess=1), shed(ShedReason.FULL)),
        (arrival(below=(full("z"),), excess=11), shed(ShedReason.FULL)),
        # Of less urgent tiers as many as it takes, of the own one eight.
        (arrival(below=(full("z"),), excess=10), Admit(ALL_OF_Z, WAIT)),
        (arrival(own=full(), excess=MAX_EVICTIONS + 1), shed(ShedReason.FULL)),
    ],
)
def test_the_written_order(met: Arrival, expected: Admit | Shed) -> None:
    assert admit(met, NOW) == expected


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        (arrival("a", own=full(), over_level=True, excess=3), Admit((), WAIT)),
        (arrival(expires_at=NOW + 0.1), Admit((), WAIT)),
        (arrival(expires_at=NOW), shed(ShedReason.DOOMED)),
    ],
)
def test_what_was_accepted_once_is_refused_by_a_passed_time_limit_alone(
    met: Arrival, expected: Admit | Shed
) -> None:
    assert isinstance(admit(met, NOW), Shed)
    assert admit(met, NOW, again=True) == expected


@given(st.lists(SECONDS, min_size=2, max_size=2).map(sorted))
def test_i15_retry_after_is_in_range_and_rises_with_the_wait(waits: list[float]) -> None:
    low, high = (retry_after_s(WaitEstimate(0.0, wait_s)) for wait_s in waits)
    assert 1 <= low <= high <= 120
    assert 1 <= retry_after_s(None) <= 120


ARRIVALS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 12)), max_size=40
)


@given(ARRIVALS, st.integers(1, 12), st.integers(10, 60))
def test_i16_nobody_is_shed_while_a_lower_class_could_give_the_room(
    arrivals: list[tuple[int, str, int]], max_requests: int, max_tokens: int
) -> None:
    """I16, at a gateway that is full as a whole, where tiers have room."""
    flow = Dispatcher(PATIENT, Prices(), bounds=Amount(max_requests, max_tokens))
    held: dict[str, QueuedRequest] = {}
    for number, (rank, tenant, tokens) in enumerate(arrivals):
        entry = request(f"r{number}", rank, tenant, tokens=tokens)
        decision = flow.enqueue(entry, 0.0)
        lower = [one for one in held.values() if one.rank > rank]
        if isinstance(decision, Shed):
            assert not fits(held, lower, entry, max_requests, max_tokens)
            continue
        gone = [held.pop(request_id) for request_id in decision.evicted]
        assert all(one.rank >= rank for one in gone), "a more urgent tier gave way"
        for one in gone:
            less_urgent = [other for other in held.values() if other.rank > one.rank]
            assert not less_urgent, "a lower class could have given way"
        held[entry.request_id] = entry
        assert len(held) == len(flow) <= max_requests
        assert len(held) == 1 or sum(one.tokens for one in held.values()) <= max_tokens
    flow.check_integrity()


def fits(
    held: dict[str, QueuedRequest],
    leaving: list[QueuedRequest],
    entry: QueuedRequest,
    max_requests: int,
    max_tokens: int,
) -> bool:
    """Return whether `entry` would fit if all those left."""
    tokens = sum(one.tokens for one in held.values()) - sum(one.tokens for one in leaving)
    return len(held) - len(leaving) < max_requests and tokens + entry.tokens <= max_tokens


def test_a_large_critical_prompt_takes_the_room_of_many_small_ones() -> None:
    flow = Dispatcher(Tiers(), Prices(), bounds=UNBOUNDED._replace(tokens=1000))
    for number in range(100):
        flow.enqueue(request(f"b{number}", 2, tokens=10), 0.0)
    decision = flow.enqueue(request("c", 0, tokens=955), 0.0)
    assert isinstance(decision, Admit)
    assert decision.evicted == tuple(f"b{number}" for number in reversed(range(4, 100)))
    assert len(flow) == 4 + 1
    flow.check_integrity()


def test_a_full_gateway_gives_up_bulk_then_normal_before_critical() -> None:
    flow = Dispatcher(Tiers(), Prices(), bounds=UNBOUNDED._replace(requests=4))
    assert flow.next(0.0, (0, 0, 0)) == Idle()
    for name, rank in (("b0", 2), ("n0", 1), ("b1", 2), ("n1", 1)):
        assert flow.enqueue(request(name, rank), 0.0) == Admit(())
    full_for = [flow.enqueue(request("more", rank), 0.0) for rank in (2, 1)]
    assert full_for[0] == shed(ShedReason.FULL, UNKNOWN_RETRY_AFTER_S)
    assert full_for[1] == Admit(("b1",))
    evicted: list[str] = []
    for number in range(4):
        decision = flow.enqueue(request(f"c{number}", 0), 0.0)
        assert isinstance(decision, Admit)
        evicted += decision.evicted
    assert evicted == ["b0", "more", "n1", "n0"]
    assert flow.enqueue(request("c4", 0), 0.0) == shed(ShedReason.FULL, UNKNOWN_RETRY_AFTER_S)
