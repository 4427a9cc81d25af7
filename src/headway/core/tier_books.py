"""What was each tier served, and which could have used more?"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from headway.core.floors import FloorLedger
from headway.core.step import TierLimits
from headway.core.waiting_line import WaitingLine

RECENT_S = 30.0
"""How long after its latest arrival a tier's next one is reckoned with."""
FLOOR_QUANTUM = 0.05
"""Least debt to a floor that is acted upon, as a share of a full step's tokens."""


class Running(Protocol):
    """What has to be known of a sequence that holds blocks."""

    @property
    def rank(self) -> int:
        """Its tier's."""

    @property
    def num_tokens(self) -> int:
        """Known tokens."""

    @property
    def num_computed(self) -> int:
        """Those that are computed."""

    @property
    def last_step(self) -> int:
        """The latest step that computed something of it."""


class TierBooks:
    """The floors and the latest arrivals of an engine's tiers; `now` is in seconds of one clock."""

    def __init__(
        self,
        tiers: Sequence[TierLimits],
        lines: Sequence[WaitingLine],
        max_num_batched_tokens: int,
    ) -> None:
        quantum = max(1.0, FLOOR_QUANTUM * max_num_batched_tokens)
        self._floors = FloorLedger([tier.floor for tier in tiers], quantum)
        self._lines = lines
        self._last_arrival = [-RECENT_S] * len(tiers)
        self._served = [0.0] * len(tiers)

    def arrive(self, rank: int, now: float) -> None:
        """Note an arrival."""
        self._last_arrival[rank] = now

    def recent(self, now: float) -> frozenset[int]:
        """Return the tiers of which a request arrived a short while ago."""
        arrivals = enumerate(self._last_arrival)
        return frozenset(rank for rank, at in arrivals if now - at < RECENT_S)

    def serve(self, rank: int, cost: float) -> None:
        """Note what a tier is served in this step."""
        self._served[rank] += cost

    def settle(self, running: Iterable[Running], step: int) -> None:
        """End the step: tell the floors what each tier got, and which could have used more."""
        backlogged = [line.num_waiting > 0 for line in self._lines]
        content = [False] * len(self._lines)
        for sequence in running:
            content[sequence.rank] = True
            if sequence.num_tokens - sequence.num_computed > 1 or sequence.last_step != step:
                backlogged[sequence.rank] = True
        self._floors.settle(self._served, backlogged, content=content)
        self._served = [0.0] * len(self._served)

    def owed(self) -> tuple[int, ...]:
        """Return the tiers behind their floor, the most owed first."""
        return self._floors.owed()
