"""Who has to wait until a LoRA adapter has a place?

vLLM computes at most `max_loras` adapters in a step and takes for granted that those of all that
run are no more. Parked requests run, too, and sessions between two inputs will: so the adapters of
all that hold blocks count here, and who needs one more waits until one is free. Until then no place
must be taken again: nobody of a less urgent tier starts with an adapter, nor one of the same tier
once the one who waits was passed over as often as one may be that does not fit. Where all users of
an adapter are less urgent and may be preempted, they give it up.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from headway.core.step import Candidate
from headway.vllm_plugin.entry import Entry


class Adapters:
    """The places for adapters in one engine, `most` of them."""

    def __init__(self, most: int, max_overtakes: int, entries: Mapping[str, Entry]) -> None:
        self._most = most
        self._max_overtakes = max_overtakes
        self._entries = entries
        self._taken: set[int] = set()
        self._waits: list[str] = []
        """Who has to wait in this step, or lacks something else."""
        self._passed_over: dict[str, int] = {}
        """In how many steps others were admitted instead of one who had to wait."""
        self._owed: Collection[int] = ()

    def without_place(
        self,
        holders: Iterable[Entry],
        candidates: Sequence[Iterable[Candidate]],
        owed: Collection[int],
        lacking: Collection[str] = (),
    ) -> list[str]:
        """Return which of the candidates, given by rank, have to wait in this step.

        A tier that is owed chooses first once one of it was passed over too often. Those `lacking`
        something else choose last, or a place would be kept for who cannot use it.
        """
        self._taken, self._owed = {entry.adapter for entry in holders} - {0}, owed
        held_up = {self._entries[n].rank for n in self._passed_over if self._is_held_up(n)}
        first = held_up.intersection(owed)
        self._waits, most_urgent, last = [], inf, []
        for rank in sorted(range(len(candidates)), key=lambda rank: rank not in first):
            is_closed = False
            for candidate in candidates[rank]:
                name = candidate.sequence_id
                adapter = self._entries[name].adapter
                is_open = not is_closed and rank <= most_urgent
                if adapter == 0:
                    continue
                if name in lacking and not self._is_held_up(name):
                    last.append(name)
                elif not (is_open and self._take(adapter)):
                    self._waits.append(name)
                    most_urgent = min(most_urgent, rank)
                    is_closed = is_closed or self._is_held_up(name)
        waits = [name for name in last if not self._take(self._entries[name].adapter)]
        waits = [*self._waits, *waits]
        self._waits += last
        return waits

    def admitted(self, admitted: Iterable[Entry]) -> None:
        """Count that others took a place for those who wait: of their tier or a less urgent one, or
        of any while theirs is owed."""
        ranks = []
        for one in admitted:
            self.forget(one.sequence_id)
            ranks += [one.rank] if one.adapter else []
        for name in self._waits if ranks else ():
            entry = self._entries.get(name)
            if entry is not None and (entry.rank in self._owed or max(ranks) >= entry.rank):
                self._passed_over[name] = self._passed_over.get(name, 0) + 1

    def forget(self, request_id: str) -> None:
        """Forget who was admitted, or has left."""
        self._passed_over.pop(request_id, None)

    def _is_held_up(self, name: str) -> bool:
        """Return whether nobody may pass it any more."""
        return name in self._entries and self._passed_over.get(name, 0) >= self._max_overtakes

    def _take(self, adapter: int) -> bool:
        """Let an adapter have a place; return whether there is one."""
        if adapter not in self._taken:
            if len(self._taken) >= self._most:
                return False
            self._taken.add(adapter)
        return True


def least_loss(
    waiting: Entry, holders: Iterable[Entry], may_go: Collection[str]
) -> Sequence[Entry]:
    """Return the users of the adapter that is given up for `waiting` at the least loss of work.

    Nobody, unless all users of one adapter are in `may_go` and less urgent.
    """
    users: dict[int, list[Entry]] = {}
    for entry in holders:
        if entry.adapter:
            users.setdefault(entry.adapter, []).append(entry)
    losses = [
        (sum(entry.num_computed for entry in group), adapter)
        for adapter, group in users.items()
        if all(e.sequence_id in may_go and e.rank > waiting.rank for e in group)
    ]
    return users[min(losses)[1]] if losses else ()
