"""Which node gets the request."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.routing import AFFINITY_QUANTUM, MAX_PREFIXES, Router

LIMIT = 16


def router(*inflight: int) -> Router:
    """Return nodes of sixteen slots each with so many in flight; rank 1 leaves one free."""
    one = Router(2)
    for node, count in enumerate(inflight):
        put(one, node, count)
    return one


def put(one: Router, node: int, count: int) -> None:
    free = (max(0, LIMIT - count), max(0, LIMIT - 1 - count))
    one.update(node, free, count / LIMIT)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, LIMIT)), max_size=60),
    st.integers(0, 1),
    st.sets(st.integers(0, 7)),
)
def test_it_chooses_as_a_look_at_every_node_would(
    changes: list[tuple[int, int]], rank: int, avoid: set[int]
) -> None:
    one, inflight = Router(2), dict.fromkeys(range(8), 0)
    for node in inflight:
        put(one, node, 0)
    for node, count in changes:
        inflight[node] = count
        put(one, node, count)
        one.check_integrity()
    fitting = [n for n, count in inflight.items() if count < LIMIT - rank]
    preferred = [n for n in fitting if n not in avoid] or fitting
    choose = min if rank == 0 else max
    expected = choose(preferred, key=lambda n: inflight[n]) if preferred else None
    assert one.choose(rank, avoid) == expected
    assert one.free[0] == sum(LIMIT - count for count in inflight.values())


def test_the_urgent_go_to_the_least_loaded_and_others_to_the_fullest_that_has_room() -> None:
    one = router(4, 14, 15, 16)
    assert [one.choose(rank) for rank in (0, 1)] == [0, 1]
    assert router(16, 16).choose(0) is None


def test_a_node_with_the_prefix_wins_within_a_quantum_only() -> None:
    near, far = round(AFFINITY_QUANTUM * LIMIT), round(AFFINITY_QUANTUM * LIMIT) + 1
    one = router(0, near)
    one.served(1, "p")
    assert one.choose(0, prefix="p") == 1
    assert one.choose(0, prefix="other") == 0
    assert one.choose(0) == 0
    put(one, 1, far)
    assert one.choose(0, prefix="p") == 0
    packed = router(8, 8 - near)
    packed.served(1, "p")
    assert packed.choose(1, prefix="p") == 1
    put(packed, 1, 8 - far)
    assert packed.choose(1, prefix="p") == 0


def test_a_prefix_gets_nobody_onto_a_node_that_is_full_or_avoided() -> None:
    one = router(15, 14)
    one.served(0, "p")
    assert one.choose(1, prefix="p") == 1
    one = router(1, 2)
    one.served(1, "p")
    assert one.choose(0, {1}, "p") == 0


def test_the_last_node_is_the_home_and_old_prefixes_are_forgotten() -> None:
    one = router(0, 1)
    one.served(1, "p")
    one.served(0, "p")
    assert one.choose(0, prefix="p") == 0
    one.served(1, "first")
    for index in range(MAX_PREFIXES):
        one.served(0, f"p{index}")
    assert one.num_prefixes == MAX_PREFIXES
    assert one.choose(0, prefix="first") == 0
