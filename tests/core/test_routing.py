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


def put(one: Router, node: int, count: int, *, behind: bool = False) -> None:
    free = (max(0, LIMIT - count), max(0, LIMIT - 1 - count))
    one.update(node, free, count / LIMIT, behind=behind)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, LIMIT), st.booleans()), max_size=60),
    st.integers(0, 1),
    st.sets(st.integers(0, 7)),
)
def test_it_chooses_as_a_look_at_every_node_would(
    changes: list[tuple[int, int, bool]], rank: int, avoid: set[int]
) -> None:
    one, inflight, behind = Router(2), dict.fromkeys(range(8), 0), dict.fromkeys(range(8), False)
    for node in inflight:
        put(one, node, 0)
    for node, count, is_behind in changes:
        inflight[node], behind[node] = count, is_behind
        put(one, node, count, behind=is_behind)
        one.check_integrity()
    fitting = [n for n, count in inflight.items() if count < LIMIT - rank]
    preferred = [n for n in fitting if n not in avoid] or fitting
    packed = [n for n in preferred if rank == 1 and not behind[n]]
    expected = max(packed, key=lambda n: inflight[n], default=None)
    if not packed:
        expected = min(preferred, key=lambda n: inflight[n], default=None)
    assert one.choose(rank, avoid) == expected
    assert one.free[0] == sum(LIMIT - count for count in inflight.values())


def test_the_urgent_go_to_the_least_loaded_and_others_to_the_fullest_that_has_room() -> None:
    one = router(4, 14, 15, 16)
    assert [one.choose(rank) for rank in (0, 1)] == [0, 1]
    assert router(16, 16).choose(0) is None


def test_nobody_packs_a_node_that_is_behind_or_goes_there_for_a_prefix() -> None:
    one = router(1, 2, 3)
    put(one, 2, 3, behind=True)
    one.served(2, "p")
    assert [one.choose(rank) for rank in (0, 1)] == [0, 1]
    assert one.choose(1, prefix="p") == 1
    put(one, 0, 1, behind=True)
    put(one, 1, 2, behind=True)
    assert one.choose(1) == 0


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
