"""What was each tier served, and which could have used more?"""

from collections.abc import Iterable
from math import inf

from headway.core.floors import FloorLedger
from headway.core.reserve import DemandReserve
from headway.core.step import StepLimits
from headway.core.waiting_line import Sequence, WaitingLine

RECENT_S = 30.0
"""How long after its latest arrival a tier's next one is reckoned with."""
RECLAIM_S = 0.5
"""About how long it takes until a slot is given back without a preemption."""
FLOOR_QUANTUM = 0.05
"""Least debt to a floor that is acted upon, as a share of a full step's tokens."""
MOST_SAVED = 2
"""Full steps that a floor saves up for whole prompts: one, and what others are owed meanwhile."""


class TierBooks:
    """The floors, arrivals and rests of an engine's tiers; `now` is in seconds of one clock."""

    def __init__(self, limits: StepLimits, lines: tuple[WaitingLine, ...], num_blocks: int) -> None:
        self._quantum = quantum = max(1.0, FLOOR_QUANTUM * limits.max_num_batched_tokens)
        # One that gets a prompt for every claim must not come with a large one, once there is room.
        most = inf if limits.enable_chunked_prefill else MOST_SAVED * limits.max_num_batched_tokens
        self._floors = FloorLedger([tier.floor for tier in limits.tiers], quantum, most)
        self._lines = lines
        self._last_arrival = [-RECENT_S] * len(limits.tiers)
        self._served = [0.0] * len(limits.tiers)
        first = limits.tiers[0]
        self._demand = DemandReserve(
            (limits.max_num_seqs, num_blocks),
            (first.reserved_slots, first.reserved_blocks),
            RECLAIM_S,
        )

    def arrive(self, rank: int, now: float, *, num_seqs: int, num_blocks: int) -> None:
        """Note an arrival, which is going to ask for slots and blocks."""
        self._last_arrival[rank] = now
        if rank == 0:
            self._demand.note(num_seqs, num_blocks, now)

    def demand(self, now: float) -> tuple[int, int]:
        """Return the slots and blocks that rank 0 may ask for soon."""
        return self._demand.size(now)

    def wake(self, now: float, *, idle: bool) -> None:
        """End rests. Nobody rests whose tier is owed, nor while nobody runs."""
        idle = idle and not any(self._lines)
        owed = self.owed()
        for rank, line in enumerate(self._lines):
            line.wake(inf if idle or rank in owed else now)

    def recent(self, now: float) -> frozenset[int]:
        """Return the tiers of which a request arrived a short while ago."""
        arrivals = enumerate(self._last_arrival)
        return frozenset(rank for rank, at in arrivals if now - at < RECENT_S)

    def serve(self, rank: int, cost: float) -> None:
        """Note what a tier is served in this step."""
        self._served[rank] += cost

    def settle(self, running: Iterable[Sequence], step: int) -> None:
        """End the step: tell the floors what each tier got, and which could have used more."""
        backlogged = [line.num_waiting > 0 for line in self._lines]
        content = [False] * len(self._lines)
        for sequence in running:
            content[sequence.rank] = True
            if backlogged[sequence.rank]:
                continue
            num_left = sequence.num_tokens - sequence.num_computed
            backlogged[sequence.rank] = num_left > 1 or sequence.last_step != step
        self._floors.settle(self._served, backlogged, content=content)
        self._served = [0.0] * len(self._served)

    def owed(self) -> tuple[int, ...]:
        """Return the tiers behind their floor, the most owed first."""
        return self._floors.owed()

    def debts(self) -> tuple[float, ...]:
        """Return by rank what is owed beyond the least debt that is acted upon."""
        return tuple(deficit - self._quantum for deficit in self._floors.deficits)
