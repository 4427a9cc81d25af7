"""Who may be planned for in this step, when vLLM would refuse some, and who gives way for that?

Without adapters and refusals: everybody in line, and nobody.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from headway.core.step import Candidate, TierLimits, Waiting
from headway.core.waiting_line import WaitingLine
from headway.vllm_plugin.adapters import Adapters, least_loss
from headway.vllm_plugin.entry import Entry
from headway.vllm_plugin.refusals import Refusals

MOST_ASKED = 512
"""Most of one tier whose adapters are looked at in one step, so that no plan is linear in the
queue."""


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Who of one line may be admitted: a `Waiting` of the core's planner."""

    line: WaitingLine
    barred: Collection[str]
    most: int | None = None
    """How far back it reaches; None: to the end."""

    def __len__(self) -> int:
        """Return how many wait who are not barred, or more."""
        return len(self.line) if next(self.in_order(), None) else 0

    def in_order(self) -> Iterator[Candidate]:
        """Yield who is to be admitted next, lazily."""
        looked_at = islice(self.line.in_order(), self.most)
        return (each for each in looked_at if each.sequence_id not in self.barred)


class Rules(NamedTuple):
    """Who may be made to give way in a step."""

    tiers: Sequence[TierLimits]
    max_preemptions: int
    step: int
    """The number of the step."""

    def allow(self, entry: Entry) -> bool:
        """Return whether a running request may lose its blocks to a more urgent one."""
        protected = entry.preemptions >= self.max_preemptions
        return not protected and self.tiers[entry.rank].preemptible


class Choice(NamedTuple):
    """Who may be admitted in a step, by rank, and who gives way for that."""

    waiting: tuple[Waiting, ...]
    evicted: frozenset[str] = frozenset()
    """They lose their blocks before the step."""
    leaving: frozenset[str] = frozenset()
    """They sit the step out, for one that is under way writes their blocks."""


class Admissible:
    """What is known of refusals and places, of one engine's waiting requests."""

    def __init__(
        self,
        lines: tuple[WaitingLine, ...],
        entries: Mapping[str, Entry],
        max_loras: int | None,
        max_overtakes: int,
    ) -> None:
        self._lines = lines
        self._entries = entries
        self._refusals = Refusals()
        self._adapters = None
        if max_loras is not None:
            self._adapters = Adapters(max_loras, max_overtakes, entries)

    def choose(
        self,
        running: Sequence[Entry],
        sessions: Sequence[Entry],
        owed: Sequence[int],
        rules: Rules,
    ) -> Choice:
        """Return who may be admitted. `sessions` hold blocks, but do not run."""
        barred = self._refusals.sitting_out(rules.step)
        if self._adapters is None:
            if not self._refusals:
                return Choice(self._lines)
            shown = tuple(Shortlist(line, barred) for line in self._lines)
            return _giving_way(shown, self._for_memory(running, rules))
        holders = [*running, *sessions]
        asked = [list(Shortlist(line, barred, MOST_ASKED).in_order()) for line in self._lines]
        waits = self._adapters.without_place(holders, asked, owed)
        users = self._for_memory(running, rules)
        if waits and not users:
            may_go = {entry.sequence_id for entry in running if rules.allow(entry)}
            users = least_loss(self._entries[waits[0]], holders, may_go)
            if users and not any(entry.is_busy for entry in users):
                stay = [entry for entry in holders if entry not in users]
                waits = self._adapters.without_place(stay, asked, owed)
        barred = barred.union(waits)
        shown = tuple(Shortlist(line, barred, MOST_ASKED) for line in self._lines)
        return _giving_way(shown, users)

    def _for_memory(self, running: Sequence[Entry], rules: Rules) -> Sequence[Entry]:
        """Return who gives way for one with images that was refused again and again.

        Running prompts hold the memory for theirs as long as they are not computed, parked or not.
        """
        begun = [e for e in running if e.has_items and e.num_computed < e.num_prompt_tokens]
        for name in self._refusals.stubborn(rules.step) if begun else ():
            entry = self._entries[name]
            others = [e for e in begun if e.rank > entry.rank and rules.allow(e)]
            if entry.has_items and others:
                return (min(others, key=lambda other: (-other.rank, other.num_computed)),)
        return ()

    def note(self, admitted: Sequence[Entry], refused: str | None, step: int) -> None:
        """Take what became of a plan, before `step`: who was admitted, and whom vLLM would not."""
        for entry in admitted:
            self._refusals.forget(entry.sequence_id)
        if refused is not None and refused in self._entries:
            self._refusals.note(refused, step)
        if self._adapters is not None:
            self._adapters.admitted(admitted)

    def forget(self, request_id: str) -> None:
        """Forget a request that has left."""
        self._refusals.forget(request_id)
        if self._adapters is not None:
            self._adapters.forget(request_id)


def _giving_way(waiting: tuple[Waiting, ...], users: Sequence[Entry]) -> Choice:
    names = frozenset(entry.sequence_id for entry in users)
    if any(entry.is_busy for entry in users):
        return Choice(waiting, leaving=names)
    return Choice(waiting, evicted=names)
