"""Does the right one give way, and nobody in vain?"""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.preemption import (
    LOOKED_AT,
    Victim,
    choose_victims,
    may_preempt,
    rest_s,
)
from headway.core.step import Candidate, Resident, TierLimits

TIERS = (TierLimits(preemptible=False), TierLimits(), TierLimits())


def resident(rank: int, arrival: int, *, protected: bool = False) -> Resident:
    """A resident of which only place and protection matter."""
    return Resident(f"r{arrival}", rank, arrival, 10, 5, 20, protected=protected)


def candidate(rank: int, arrival: int) -> Candidate:
    """A candidate of which only place matters."""
    return Candidate(f"c{arrival}", rank, arrival, 10, 20)


victims = st.lists(
    st.builds(
        Victim,
        sequence_id=st.uuids().map(str),
        rank=st.integers(0, 3),
        arrival=st.integers(0, 1000),
        num_computed=st.integers(0, 100),
    ),
    max_size=6,
    unique_by=lambda v: v.sequence_id,
)


@given(victims, st.data(), st.integers(0, 12), st.integers(0, 2))
def test_enough_and_nobody_in_vain(
    candidates: list[Victim], data: st.DataObject, num_blocks: int, num_slots: int
) -> None:
    """The chosen suffice and none of them could be spared; None only if all do not suffice."""
    ids = [victim.sequence_id for victim in candidates]
    holder_sets = st.sets(st.sampled_from(ids), min_size=1) if ids else st.just({"nobody here"})
    holders = data.draw(st.lists(holder_sets, max_size=12))

    def gained(sequence_ids: Collection[str]) -> int:
        """A block is gained when all its holders go."""
        return sum(block <= set(sequence_ids) for block in holders)

    chosen = choose_victims(candidates, gained, num_blocks=num_blocks, num_slots=num_slots)
    if chosen is None:
        assert gained(ids) < num_blocks or len(ids) < num_slots
        return
    assert len(set(chosen)) == len(chosen) >= num_slots
    assert gained(chosen) >= num_blocks
    if len(chosen) > num_slots:
        for spared in chosen:
            assert gained([other for other in chosen if other != spared]) < num_blocks


def choose(candidates: dict[Victim, int], num_blocks: int, num_slots: int) -> tuple[str, ...]:
    """Choose among victims that share nothing, with the blocks that each holds."""
    held = {victim.sequence_id: blocks for victim, blocks in candidates.items()}
    chosen = choose_victims(
        candidates,
        lambda ids: sum(held[sequence_id] for sequence_id in ids),
        num_blocks=num_blocks,
        num_slots=num_slots,
    )
    assert chosen is not None
    return chosen


def test_i12_where_all_do_not_suffice_few_are_asked_what_they_gain() -> None:
    """Each answer looks at all blocks of those it is asked for, and the next step asks again."""
    asked: list[Collection[str]] = []

    def gained(sequence_ids: Collection[str]) -> int:
        asked.append(sequence_ids)
        return len(sequence_ids)

    many = [Victim(f"v{i}", 2, i, 0) for i in range(1000)]
    assert choose_victims(many, gained, num_blocks=1001, num_slots=0) is None
    assert len(asked) <= LOOKED_AT + 1
    fewest = choose_victims(many, gained, num_blocks=300, num_slots=0)
    assert fewest is not None
    assert len(fewest) == 300


def test_the_least_urgent_then_the_least_work_lost_then_the_youngest() -> None:
    """The order of preference, seen by asking for one slot."""
    normal, worked = Victim("normal", 1, 9, 0), Victim("worked", 2, 8, 60)
    older, younger = Victim("older", 2, 1, 20), Victim("younger", 2, 2, 20)
    assert choose({normal: 5, worked: 5, older: 5, younger: 5}, 0, 1) == ("younger",)
    assert choose({normal: 5, worked: 5, older: 5}, 0, 1) == ("older",)
    assert choose({normal: 5, worked: 5}, 0, 1) == ("worked",)


def test_one_who_suffices_alone_comes_first() -> None:
    """A little more work is lost, but one request is disturbed instead of two."""
    assert choose({Victim("small", 2, 1, 5): 1, Victim("large", 2, 2, 50): 4}, 3, 0) == ("large",)


@given(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9), st.integers(0, 9))
def test_edges_point_down_or_to_the_younger(
    mine: int, other: int, my_age: int, other_age: int
) -> None:
    """G4: so preemption has no cycle."""
    victim = resident(other, other_age)
    allowed = may_preempt(resident(mine, my_age), victim, TIERS)
    assert allowed == (other > mine or (other == mine and other_age > my_age))
    assert may_preempt(candidate(mine, my_age), victim, TIERS) == (other > mine)


def test_the_protected_and_the_not_preemptible_stay() -> None:
    """G4: preemptions of one request are bounded; a tier may be exempt as a whole."""
    exempt = (TierLimits(), TierLimits(preemptible=False), TierLimits())
    assert not may_preempt(resident(0, 0), resident(2, 5, protected=True), TIERS)
    assert not may_preempt(resident(0, 0), resident(1, 5), exempt)
    large = resident(2, 5, protected=True)
    assert [may_preempt(resident(i, 0), large, TIERS, is_large=True) for i in (0, 1, 2)] == [
        True,
        False,
        False,
    ]
    most_urgent = resident(0, 5, protected=True)
    assert not may_preempt(resident(0, 0), most_urgent, TIERS, is_large=True)
    assert may_preempt(resident(1, 0), resident(1, 5), exempt)


def test_g4_each_rest_is_twice_as_long_as_the_one_before_up_to_two_seconds() -> None:
    rests = [rest_s(num_preemptions, 9) for num_preemptions in range(1, 7)]
    assert rests == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0, 2.0])


def test_no_number_of_preemptions_is_too_many_to_rest_after() -> None:
    assert rest_s(100_000, 3) == 2.0


def test_nobody_rests_after_the_preemption_that_protects() -> None:
    """A large one does again after each that rank 0 asks of it beyond."""
    assert [rest_s(num_preemptions, 2) for num_preemptions in (1, 2, 3)] == [0.2, 0.0, 0.8]
