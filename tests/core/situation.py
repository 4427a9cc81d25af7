"""What does a step planner look at in tests?"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from headway.core.batching import plan_step
from headway.core.protection import target
from headway.core.step import (
    Candidate,
    Match,
    Resident,
    StepInput,
    StepLimits,
    StepPlan,
    TierLimits,
)

BLOCK = 16
PLAIN = (TierLimits(preemptible=False), TierLimits(), TierLimits())


@dataclass
class Pool:
    """A pool without sharing: a sequence holds the blocks of its computed tokens, no others."""

    num_blocks: int
    residents: tuple[Resident, ...]
    matches: dict[str, Match] = field(default_factory=dict)
    block_size: int = BLOCK

    @property
    def num_available(self) -> int:
        """Blocks nobody holds."""
        return self.num_blocks - self.releasable([r.sequence_id for r in self.residents], ())

    def lacking(self, residents: Collection[Resident]) -> dict[str, int]:
        """See `Memory`."""
        growths = ((r.sequence_id, blocks(target(r)) - blocks(r.num_computed)) for r in residents)
        return {sequence_id: growth for sequence_id, growth in growths if growth > 0}

    def releasable(self, sequence_ids: Collection[str], pinned: Collection[int]) -> int:
        """See `Memory`."""
        return sum(blocks(r.num_computed) for r in self.residents if r.sequence_id in sequence_ids)

    def match(self, sequence_id: str) -> Match:
        """See `Memory`."""
        return self.matches.get(sequence_id, Match())


@dataclass
class Line:
    """Candidates in a given order."""

    candidates: list[Candidate]

    def __len__(self) -> int:
        """See `Waiting`."""
        return len(self.candidates)

    def in_order(self) -> Iterator[Candidate]:
        """See `Waiting`."""
        return iter(self.candidates)


def blocks(num_tokens: int) -> int:
    """Blocks of so many tokens."""
    return -(-num_tokens // BLOCK)


def decode(name: str, rank: int, arrival: int, tokens: int = 20, last_step: int = 0) -> Resident:
    """A resident with one token to compute."""
    return Resident(name, rank, arrival, tokens + 1, tokens, tokens + 60, last_step)


def prefill(name: str, rank: int, arrival: int, left: int, last_step: int = 0) -> Resident:
    """A resident that has computed one block of its prompt."""
    return Resident(name, rank, arrival, BLOCK + left, BLOCK, BLOCK + left + 20, last_step)


def waits(name: str, rank: int, arrival: int, tokens: int, **more: int | bool) -> Candidate:
    """A candidate."""
    overtaken, protected = int(more.get("overtaken", 0)), bool(more.get("protected", False))
    return Candidate(name, rank, arrival, tokens, tokens + 20, protected, overtaken)


def plan(
    residents: list[Resident],
    candidates: list[Candidate],
    *,
    num_blocks: int = 1000,
    limits: StepLimits | None = None,
    matches: dict[str, Match] | None = None,
    **seen: Any,
) -> StepPlan:
    """Plan a step of this situation; `seen` is what else a `StepInput` tells."""
    if limits is None:
        limits = StepLimits(max_num_seqs=32, max_num_batched_tokens=64, tiers=PLAIN)
    ranks = range(len(limits.tiers))
    held = tuple(residents)
    return plan_step(
        StepInput(
            residents=held,
            waiting=tuple(Line([c for c in candidates if c.rank == rank]) for rank in ranks),
            memory=Pool(num_blocks, held, {} if matches is None else matches),
            **seen,
        ),
        limits,
    )


def tokens(step: StepPlan) -> dict[str, int]:
    """Tokens by sequence."""
    return {item.sequence_id: item.num_tokens for item in step.items}


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Resident], list[Candidate], int, StepLimits]:
    """Residents that fit, candidates that fit alone, limits."""
    num_blocks = draw(st.integers(4, 24))
    residents: list[Resident] = []
    left = num_blocks
    for arrival in range(draw(st.integers(0, 6))):
        computed = draw(st.integers(1, BLOCK * 4 - 1))
        if blocks(computed) > left:
            break
        left -= blocks(computed)
        room = num_blocks * BLOCK - computed
        unknown = draw(st.integers(1, min(40, room)))
        most = computed + unknown + draw(st.integers(0, room - unknown))
        rank, turn = draw(st.integers(0, 2)), draw(st.integers(0, 3))
        residents.append(
            Resident(f"r{arrival}", rank, arrival, computed + unknown, computed, most, turn)
        )
    candidates = []
    for arrival in range(100, 100 + draw(st.integers(0, 6))):
        size = draw(st.integers(1, num_blocks * BLOCK))
        candidates.append(
            Candidate(
                f"c{arrival}",
                draw(st.integers(0, 2)),
                arrival,
                size,
                draw(st.integers(size, num_blocks * BLOCK)),
                overtaken=draw(st.integers(0, 9)),
            )
        )
    limits = StepLimits(
        max_num_seqs=draw(st.integers(max(1, len(residents)), 8)),
        max_num_batched_tokens=draw(st.integers(1, 64)),
        tiers=PLAIN,
        enable_chunked_prefill=draw(st.booleans()),
    )
    return residents, candidates, num_blocks, limits
