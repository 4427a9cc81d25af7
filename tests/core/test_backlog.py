"""Do the bounds hold, and does room come from whoever holds most of the queue?"""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.backlog import MAX_EVICTIONS, Backlog, QueuedRequest
from headway.core.need import Amount
from tests.core.scenario import request


def make_room(backlog: Backlog, entry: QueuedRequest) -> tuple[str, ...] | None:
    """Return whom the backlog evicts for `entry`, or None when they give too little room."""
    need = backlog.shortage(entry)
    victims = backlog.give_way(entry, need, MAX_EVICTIONS)
    enough = not need.less(victim.tokens for victim in victims)
    return tuple(victim.request_id for victim in victims) if enough else None


def filled(backlog: Backlog, tenant: str, count: int, tokens: int = 1, weight: float = 1.0) -> None:
    """Add `count` requests of a tenant."""
    for number in range(count):
        backlog.add(request(f"{tenant}{number}", tenant=tenant, tokens=tokens, weight=weight))


def test_room_is_made_by_the_newest_of_the_largest_tenant() -> None:
    backlog = Backlog(10, 1000)
    filled(backlog, "a", 7)
    filled(backlog, "b", 3)
    assert make_room(backlog, request("c0", tenant="c")) == ("a6",)
    assert backlog.requests == 10, "asking changes nothing"
    assert make_room(backlog, request("a7", tenant="a")) is None
    assert make_room(backlog, request("b3", tenant="b")) == ("a6",)


def test_equals_do_not_evict_each_other() -> None:
    backlog = Backlog(10, 1000)
    filled(backlog, "a", 6)
    filled(backlog, "b", 4)
    assert make_room(backlog, request("b4", tenant="b")) == ("a5",)
    filled_evenly = Backlog(10, 1000)
    filled(filled_evenly, "a", 5)
    filled(filled_evenly, "b", 5)
    assert make_room(filled_evenly, request("b5", tenant="b")) is None


def test_weight_buys_a_larger_share() -> None:
    backlog = Backlog(10, 1000)
    filled(backlog, "a", 6, weight=3.0)
    filled(backlog, "b", 4, weight=1.0)
    assert make_room(backlog, request("a6", tenant="a", weight=3.0)) == ("b3",)


def test_a_tenant_is_over_its_share_only_beside_others() -> None:
    backlog = Backlog(100, 1000)
    filled(backlog, "a", 6)
    assert not backlog.is_over_share(request("a6", tenant="a"))
    filled(backlog, "b", 3, weight=0.5)
    filled(backlog, "c", 5)
    over = {tenant: backlog.is_over_share(request("x", tenant=tenant)) for tenant in "abcd"}
    assert over == {"a": True, "b": True, "c": False, "d": False}


def test_whoever_holds_most_gives_way_whatever_its_share_when_asked_from_above() -> None:
    backlog = Backlog(100, 1000)
    filled(backlog, "a", 2, tokens=5)
    filled(backlog, "b", 3, tokens=5)
    newest = [entry.request_id for entry in backlog.newest(Amount(0, 12), MAX_EVICTIONS)]
    assert newest == ["b2", "b1", "a1"]
    assert [entry.request_id for entry in backlog.newest(Amount(9, 0), 4)] == [
        "b2",
        "b1",
        "a1",
        "b0",
    ]
    assert backlog.requests == 5, "asking changes nothing"


def test_tokens_count_as_much_as_requests() -> None:
    backlog = Backlog(100, 100)
    filled(backlog, "a", 2, tokens=45)
    filled(backlog, "b", 10, tokens=1)
    assert not backlog.shortage(request("b10", tenant="b", tokens=0))
    assert backlog.shortage(request("b10", tenant="b", tokens=1)) == Amount(0, 1)
    assert make_room(backlog, request("b10", tenant="b", tokens=5)) == ("a1",)


def test_one_arrival_displaces_only_so_many() -> None:
    backlog = Backlog(1000, 100)
    filled(backlog, "a", 100, tokens=1)
    room = make_room(backlog, request("b0", tenant="b", tokens=MAX_EVICTIONS))
    assert room == tuple(f"a{99 - number}" for number in range(MAX_EVICTIONS))
    assert make_room(backlog, request("b0", tenant="b", tokens=MAX_EVICTIONS + 1)) is None
    backlog.check_integrity()


def test_a_giant_may_wait_only_alone() -> None:
    backlog = Backlog(10, 100)
    giant = request("giant", tenant="a", tokens=500)
    assert make_room(backlog, giant) == ()
    filled(backlog, "b", 1)
    assert make_room(backlog, giant) is None


WEIGHTS = {"a": 1.0, "b": 1.0, "c": 2.0, "d": 0.5}
MAX_REQUESTS, MAX_TOKENS = 12, 100
ENTRIES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 30), st.booleans()), max_size=60
)


def share(tenant: str, entries: list[QueuedRequest]) -> float:
    """Return the tenant's dominant share of the bounds, by weight."""
    own = [entry.tokens for entry in entries if entry.tenant == tenant]
    return max(len(own) / MAX_REQUESTS, sum(own) / MAX_TOKENS) / WEIGHTS[tenant]


@given(ENTRIES)
def test_bounds_hold_and_nobody_within_its_share_gives_way(
    arrivals: list[tuple[str, int, bool]],
) -> None:
    """A5(4) and G9, queue side."""
    backlog = Backlog(MAX_REQUESTS, MAX_TOKENS)
    held: list[QueuedRequest] = []
    for number, (tenant, tokens, leaves) in enumerate(arrivals):
        entry = request(str(number), tenant=tenant, tokens=tokens, weight=WEIGHTS[tenant])
        victims = make_room(backlog, entry)
        backlog.check_integrity()
        assert backlog.requests == len(held), "asking changes nothing"
        if victims is not None:
            own_share = share(tenant, [*held, entry])
            for victim in victims:
                gone = next(one for one in held if one.request_id == victim)
                assert share(gone.tenant, held) > own_share
                newer = held[held.index(gone) + 1 :]
                assert all(one.tenant != gone.tenant for one in newer), "not the newest"
                backlog.remove(gone)
                held.remove(gone)
            backlog.add(entry)
            held.append(entry)
        if leaves and held:
            backlog.remove(held.pop(0))
        backlog.check_integrity()
        assert backlog.requests <= MAX_REQUESTS
        assert backlog.tokens <= MAX_TOKENS
    for entry in held:
        backlog.remove(entry)
    assert (backlog.requests, backlog.tokens, backlog.total_weight, backlog.cost) == (
        0,
        0,
        0.0,
        0.0,
    )
    assert all(backlog.tenant_cost(tenant) == 0 for tenant in WEIGHTS)
