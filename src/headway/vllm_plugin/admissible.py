"""Who may be planned for in this step, when vLLM would refuse some, and who gives way for that?

Without adapters and refusals: everybody in line, and nobody.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from headway.core.step import Candidate, Memory, TierLimits, Waiting
from headway.core.waiting_line import WaitingLine
from headway.vllm_plugin.adapters import Adapters, least_loss
from headway.vllm_plugin.entry import Entry
from headway.vllm_plugin.refusals import Refusals

MOST_ASKED, MOST_LOOKED_AT = 256, 1024
"""Most of one tier that may get a place for an adapter in one step, and most of whom one without an
adapter is found, so that no plan is linear in the queue."""


@dataclass(frozen=True, slots=True)
class Shortlist:
    """Candidates of one tier in their order: a `Waiting` of the core's planner."""

    candidates: tuple[Candidate, ...] = ()
    further: Callable[[], Iterator[Candidate]] = lambda: iter(())
    """Those behind them."""

    def __len__(self) -> int:
        """Return how many may be admitted, those behind not counted."""
        return len(self.candidates)

    def in_order(self) -> Iterator[Candidate]:
        """Yield who is to be admitted next, lazily."""
        return chain(self.candidates, self.further())


@dataclass(frozen=True, slots=True)
class Others:
    """All of one line but a few; a `Waiting` of the core's planner."""

    line: WaitingLine
    barred: Collection[str]
    """All of this line."""

    def __len__(self) -> int:
        """Return how many may be admitted."""
        return max(0, len(self.line) - len(self.barred))

    def in_order(self) -> Iterator[Candidate]:
        """Yield who is to be admitted next, lazily."""
        return (each for each in self.line.in_order() if each.sequence_id not in self.barred)


class Rules(NamedTuple):
    """Who may be made to give way in a step."""

    tiers: Sequence[TierLimits]
    max_preemptions: int
    step: int
    """The number of the step."""
    owed: Sequence[int]
    lacking: Collection[str] = ()
    """Who could not be admitted in the step before for want of a slot or blocks."""

    def allow(self, entry: Entry) -> bool:
        """Return whether a running request may lose its blocks to a more urgent one."""
        protected = entry.preemptions >= self.max_preemptions
        return not protected and self.tiers[entry.rank].preemptible


class Admissible:
    """What is known of refusals and places, of one engine's requests."""

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

    @property
    def is_plain(self) -> bool:
        """Whether there are no adapters and no refusals, so that the core decides alone."""
        return self._adapters is None and not self._refusals

    def give_way(
        self, running: Sequence[Entry], sessions: Sequence[Entry], memory: Memory, rules: Rules
    ) -> Sequence[Entry]:
        """Return who is to lose its blocks before the step is planned, so that others can run.

        One that a step under way writes has to sit out until that has ended. `sessions` hold
        blocks, but do not run.
        """
        users = self._for_encoder(running, rules)
        if users or self._adapters is None:
            return users
        holders = [*running, *sessions]
        _, waits = self._without_place(holders, rules)
        may_go = {entry.sequence_id for entry in running if rules.allow(entry)}
        for name in waits:
            waiting = self._entries[name]
            # Only for the most urgent tier: a short request of another would undo much work.
            if waiting.rank == 0 and name not in self._refusals:
                users = least_loss(waiting, holders, may_go)
                return users if _suffice(users, waiting, memory) else ()
        return ()

    def choose(
        self, running: Sequence[Entry], sessions: Sequence[Entry], rules: Rules
    ) -> tuple[Waiting, ...]:
        """Return who may be admitted, by rank."""
        if self._adapters is not None:
            asked, waits = self._without_place([*running, *sessions], rules)
            barred = frozenset(waits)
            shown = [tuple(each for each in one if each.sequence_id not in barred) for one in asked]
            both = zip(shown, self._lines, strict=True)
            return tuple(Shortlist(some, partial(self._plain, line)) for some, line in both)
        sitting_out = self._sitting_out(rules.step)
        if not any(sitting_out):
            return self._lines
        offered = zip(self._lines, sitting_out, strict=True)
        return tuple(Others(line, barred) for line, barred in offered)

    def idle(self, running: Sequence[Entry], step: int) -> frozenset[str]:
        """Return who of those that run sits a step out, for vLLM computed nothing of it."""
        if not self._refusals:
            return frozenset()
        sit_out = self._refusals.sitting_out(step)
        return frozenset(e.sequence_id for e in running if e.sequence_id in sit_out)

    def note(self, served: Sequence[Entry], refused: Collection[str], step: int) -> None:
        """Take what became of a plan, before `step`: of whom something was computed, and for whom
        vLLM did nothing although the plan did."""
        for entry in served if self._refusals else ():
            self._refusals.forget(entry.sequence_id)
        for name in refused:
            if name in self._entries:
                self._refusals.note(name, step)

    def note_admitted(self, admitted: Sequence[Entry]) -> None:
        """Take who was admitted."""
        if self._adapters is not None:
            self._adapters.admitted(admitted)

    def forget(self, request_id: str) -> None:
        """Forget a request that has left."""
        self._refusals.forget(request_id)
        if self._adapters is not None:
            self._adapters.forget(request_id)

    def _plain(self, line: WaitingLine) -> Iterator[Candidate]:
        """Yield those without an adapter who stand further back than is asked about places."""
        for candidate in islice(line.in_order(), MOST_ASKED, MOST_LOOKED_AT):
            if self._entries[candidate.sequence_id].adapter == 0:
                yield candidate

    def _sitting_out(self, step: int) -> list[set[str]]:
        """Return who of those in line is not to be offered at a step, by rank."""
        found: list[set[str]] = [set() for _ in self._lines]
        for name in self._refusals.sitting_out(step):
            rank = self._entries[name].rank
            if name in self._lines[rank]:
                found[rank].add(name)
        return found

    def _without_place(
        self, holders: Sequence[Entry], rules: Rules
    ) -> tuple[list[list[Candidate]], list[str]]:
        """Return the first of each line, and who of those has to wait for a place."""
        assert self._adapters is not None
        sit_out = self._refusals.sitting_out(rules.step)
        asked = [
            [c for c in islice(line.in_order(), MOST_ASKED) if c.sequence_id not in sit_out]
            for line in self._lines
        ]
        return asked, self._adapters.without_place(holders, asked, rules.owed, rules.lacking)

    def _for_encoder(self, running: Sequence[Entry], rules: Rules) -> Sequence[Entry]:
        """Return who gives way for one with images that was refused again and again.

        Running prompts hold the encoder's memory until they are computed, parked or not.
        """
        name = self._refusals.stubborn
        entry = None if name is None else self._entries.get(name)
        if entry is None or not entry.has_items:
            return ()
        others = [
            other
            for other in running
            if other.has_items
            and 0 < other.num_computed < other.num_prompt_tokens
            and other.rank > entry.rank
            and rules.allow(other)
        ]
        users = sorted(others, key=lambda other: (-other.rank, other.num_computed))[:1]
        if not any(each.is_busy for each in users):
            self._refusals.stubborn = None
        return users


def _suffice(users: Sequence[Entry], waiting: Entry, memory: Memory) -> bool:
    """Return whether a request could be admitted once they have left."""
    needed = -(-(waiting.num_tokens + 1) // memory.block_size)
    names = [entry.sequence_id for entry in users]
    return bool(users) and needed <= memory.num_available + memory.releasable(names, ())
