"""How do the figures of a claim, one for each seed, become rows that are met or missed?"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median

import msgspec

from headway.sim.measures import RunReport
from headway.sim.run import simulate
from headway.sim.scenario_file import find_scenario, load_scenario

Figures = dict[str, float]
NO_SETTINGS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs scenarios with one seed."""

    seed: int
    traces: Path

    def run(
        self,
        scenario: str,
        policy: str = "headway",
        settings: Mapping[str, object] = NO_SETTINGS,
        trace: str | None = None,
    ) -> RunReport:
        """Return the figures of one run."""
        path = None if trace is None else self.traces / f"{trace}.csv"
        loaded = load_scenario(find_scenario(scenario), settings, trace=path)
        return simulate(loaded, policy, self.seed)


@dataclass(frozen=True, slots=True)
class Bound:
    """What is asked of a figure."""

    least: float = -inf
    most: float = inf

    def __str__(self) -> str:
        """Return it as in the table."""
        if -inf < self.least and self.most < inf:
            return f"{self.least:g} to {self.most:g}"
        return f">= {self.least:g}" if self.most == inf else f"<= {self.most:g}"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is measured with one seed, and what is asked of it; other figures are only shown."""

    number: int
    name: str
    measure: Callable[[Bench], Figures]
    asked: Mapping[str, Bound] = field(default_factory=dict)


class Row(msgspec.Struct, frozen=True):
    """One figure of a claim with all seeds."""

    claim: int
    name: str
    figure: str
    asked: str
    by_seed: list[float]
    met: bool | None


def rows_of(claim: Claim, by_seed: Sequence[Figures]) -> list[Row]:
    """Return a row for each figure; met is what is met with every seed."""
    rows = []
    for figure in by_seed[0]:
        values = [figures[figure] for figures in by_seed]
        bound = claim.asked.get(figure)
        met = None if bound is None else all(bound.least <= x <= bound.most for x in values)
        asked = "" if bound is None else str(bound)
        rows.append(Row(claim.number, claim.name, figure, asked, values, met))
    return rows


def line_of(row: Row) -> str:
    """Return it for the terminal."""
    low, middle, high = min(row.by_seed), median(row.by_seed), max(row.by_seed)
    met = {None: "", True: "met", False: "MISSED"}[row.met]
    spread = f"{middle:.4g} ({low:.4g} to {high:.4g})"
    return f"{row.claim} {row.name:<10} {row.figure:<50} {row.asked:<12} {spread:<32} {met}\n"
