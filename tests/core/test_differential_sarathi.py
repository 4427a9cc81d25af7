"""Is the step plan Sarathi's, once tiers, floors, weights and the prefix cache are off? (M13)

The reference is Sarathi-Serve's (OSDI'24) in its own order: all decodes, then chunks of the prompts
that have begun, then new prompts, each the smaller of what is left of the prompt and of the budget.
Two rules are ours and switched on by `shares`: the decodes leave half of the budget to prompts that
have begun, and the first prompt that does not end leaves half to those behind it; what then is left
over goes round once more.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.step import Candidate, Resident, StepLimits, TierLimits
from tests.core.situation import BLOCK, plan, tokens

TIERS = (TierLimits(),)


@dataclass
class Sarathi:
    """A planner of one tier with blocks for all."""

    budget: int
    slots: int
    shares: bool

    def plan(self, residents: list[Resident], waiting: list[Candidate]) -> dict[str, int]:
        """Return the tokens of each sequence that the step computes."""
        planned: dict[str, int] = {}
        turns = sorted(residents, key=lambda r: (r.last_step, r.arrival))
        decodes = [r.sequence_id for r in turns if r.num_left == 1]
        begun = [(r.sequence_id, r.num_left) for r in turns if r.num_left > 1]
        new = [(c.sequence_id, c.num_tokens) for c in waiting[: self.slots - len(residents)]]
        kept = min(sum(left for _, left in begun), self.budget // 2) if self.shares else 0
        for name in decodes[: self.budget - kept]:
            planned[name] = 1
        halved = not self.shares
        for name, wanted in [*begun, *new]:
            left = self.budget - sum(planned.values())
            last_new = bool(waiting) and name == waiting[-1].sequence_id
            if wanted > left > 0 and not halved and not last_new:
                halved, left = True, (left + 1) // 2
            if left > 0:
                planned[name] = min(wanted, left)
        for name, wanted in [*((name, 1) for name in decodes), *begun]:
            left = self.budget - sum(planned.values())
            more = min(left, wanted - planned.get(name, 0))
            if more > 0:
                planned[name] = planned.get(name, 0) + more
        return planned


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[Resident], list[Candidate], int, int]:
    """Draw residents, waiting requests, a budget and slots."""
    residents = []
    for arrival in range(draw(st.integers(0, 8))):
        left = draw(st.one_of(st.just(1), st.integers(1, 60)))
        computed = draw(st.integers(1, 5)) * BLOCK
        turn = draw(st.integers(0, 3))
        residents.append(Resident(f"r{arrival}", 0, arrival, computed + left, computed, 400, turn))
    waiting = [
        Candidate(f"c{arrival}", 0, arrival, draw(st.integers(1, 90)), 400)
        for arrival in range(100, 100 + draw(st.integers(0, 6)))
    ]
    slots = len(residents) + draw(st.integers(0, 6))
    return residents, waiting, draw(st.integers(1, 80)), max(1, slots)


def ours(load: tuple[list[Resident], list[Candidate], int, int]) -> dict[str, int]:
    """Return the tokens that the core plans."""
    residents, waiting, budget, slots = load
    return tokens(plan(residents, waiting, limits=StepLimits(slots, budget, TIERS)))


@settings(max_examples=500)
@given(loads())
def test_m13_the_plan_is_sarathis_with_two_rules_more(
    load: tuple[list[Resident], list[Candidate], int, int],
) -> None:
    residents, waiting, budget, slots = load
    assert ours(load) == Sarathi(budget, slots, shares=True).plan(residents, waiting)


@settings(max_examples=300)
@given(loads())
def test_m13_where_one_prompt_waits_the_plan_is_sarathis(
    load: tuple[list[Resident], list[Candidate], int, int],
) -> None:
    """Where nothing has begun and one prompt waits there is nobody to share with."""
    residents = [r for r in load[0] if r.num_left == 1]
    alone = (residents, load[1][:1], load[2], load[3])
    assert ours(alone) == Sarathi(load[2], load[3], shares=False).plan(residents, load[1][:1])


def test_m13_sharing_is_a_real_difference() -> None:
    """A short prompt behind a long one: Sarathi's budget goes to the long one alone."""
    waiting = [Candidate("long", 0, 0, 300, 400), Candidate("short", 0, 1, 20, 400)]
    assert ours(([], waiting, 64, 4)) == {"long": 32, "short": 20}
    assert Sarathi(64, 4, shares=False).plan([], waiting) == {"long": 64}
