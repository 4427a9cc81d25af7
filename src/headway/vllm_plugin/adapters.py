"""Who has to wait until a LoRA adapter has a place?

vLLM computes at most `max_loras` adapters in a step and takes for granted that those of all running
requests are no more. Parked requests run, too: so the adapters of all that run count here, and who
needs one more waits until one is free. Until then the places must not be taken again: nobody of a
less urgent tier starts with an adapter, and nobody at all once the one who waits was passed over as
often as one may be that does not fit.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from headway.core.step import Candidate
from headway.vllm_plugin.entry import Entry


class Adapters:
    """The places for adapters in one engine, `most` of them; None: it has no adapters."""

    def __init__(self, most: int | None, max_overtakes: int) -> None:
        self.most = most
        self._max_overtakes = max_overtakes
        self._taken: set[int] = set()
        self._passed_over: dict[str, int] = {}
        """Who has to wait, and in how many steps in a row others were admitted instead."""
        self._owed: Collection[int] = ()

    def without_place(
        self,
        running: Iterable[Entry],
        candidates: Sequence[Iterable[Candidate]],
        owed: Collection[int],
        entries: Mapping[str, Entry],
    ) -> frozenset[str]:
        """Return which of the candidates, given by rank, have to wait in this step.

        Tiers that are owed choose first, unless somebody more urgent must not be passed over.
        """
        self._taken, self._owed = {entry.adapter for entry in running} - {0}, owed
        held = [entries[name].rank for name in self._passed_over if self._is_held_up(name, entries)]
        first = [rank for rank in owed if rank <= min(held, default=inf)]
        waits: dict[str, int] = {}
        is_closed, most_urgent = False, inf
        for rank in sorted(range(len(candidates)), key=lambda rank: rank not in first):
            for candidate in candidates[rank]:
                name = candidate.sequence_id
                adapter = entries[name].adapter
                is_open = not is_closed and rank <= most_urgent
                if adapter == 0 or (is_open and self._take(adapter)):
                    continue
                waits[name] = self._passed_over.get(name, 0)
                most_urgent = min(most_urgent, rank)
                is_closed = is_closed or self._is_held_up(name, entries)
        self._passed_over = waits
        return frozenset(waits)

    def admitted(self, admitted: Iterable[Entry], entries: Mapping[str, Entry]) -> None:
        """Count that others took a place for those who wait: of their tier or a less urgent one, or
        of any while theirs is owed."""
        ranks = [entry.rank for entry in admitted if entry.adapter]
        for name, times in self._passed_over.items():
            if name in entries and ranks:
                rank = entries[name].rank
                self._passed_over[name] = times + (rank in self._owed or max(ranks) >= rank)

    def _is_held_up(self, name: str, entries: Mapping[str, Entry]) -> bool:
        """Return whether nobody may pass it any more."""
        return name in entries and self._passed_over.get(name, 0) >= self._max_overtakes

    def _take(self, adapter: int) -> bool:
        """Let an adapter have a place; return whether there is one."""
        if adapter not in self._taken:
            if self.most is None or len(self._taken) >= self.most:
                return False
            self._taken.add(adapter)
        return True
