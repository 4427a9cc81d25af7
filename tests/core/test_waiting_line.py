"""What is a sequence charged for being admitted, and what is it expected to take still?"""

from dataclasses import dataclass

import pytest

from headway.core.cost import Prices
from headway.core.waiting_line import WaitingLine

PRICES = Prices(prefill=1.0, decode=2.0, cached=0.25)


@dataclass(slots=True)
class Waiter:
    """A sequence of which the line may ask."""

    sequence_id: str
    tenant: str
    arrival: int
    rank: int = 1
    key: float = 0.0
    weight: float = 1.0
    num_prompt_tokens: int = 100
    num_tokens: int = 100
    max_num_tokens: int = 110
    num_computed: int = 0
    last_step: int = 0
    overtaken: int = 0
    preemptions: int = 0


def a_line(*waiters: Waiter) -> WaitingLine:
    """Return a line in which those wait."""
    sequences = {each.sequence_id: each for each in waiters}
    line = WaitingLine(sequences, PRICES, 3, by_tenant=True)
    for each in waiters:
        line.push(each)
    return line


def order(line: WaitingLine) -> list[str]:
    """Return who is next, all of them."""
    return [candidate.sequence_id for candidate in line.in_order()]


def test_g3_what_comes_from_the_cache_is_charged_at_its_price() -> None:
    """Otherwise a tenant whose prompts are all cached takes every slot for nothing."""
    hit, more, other = Waiter("a0", "a", 0), Waiter("a1", "a", 1), Waiter("b0", "b", 2)
    line = a_line(hit, more, other)
    assert line.admitted(hit, 100) == pytest.approx(0.25 * 100)
    line.leave(hit)
    assert order(line) == ["b0", "a1"]
    line.check_integrity()


@pytest.mark.parametrize(
    ("answers", "first"),
    # a's expected answer at 2 a token, beside b's 16 decodes at 2.
    [(8, "a1"), (24, "b0")],
)
def test_g3_the_answer_that_is_expected_counts_from_the_admission(answers: int, first: str) -> None:
    ended = Waiter("a-", "a", 0, num_tokens=100 + answers, max_num_tokens=200)
    running, more = Waiter("a0", "a", 1, max_num_tokens=200), Waiter("a1", "a", 2)
    other = Waiter("b0", "b", 3)
    line = a_line(ended, running, more, other)
    line.leave(ended)
    line.admitted(running, 100)
    served = Waiter("b-", "b", 4)
    line.push(served)
    line.admitted(served, 100)
    line.leave(served)
    line.charge_decodes(other, 16)
    assert order(line)[0] == first
    line.check_integrity()
