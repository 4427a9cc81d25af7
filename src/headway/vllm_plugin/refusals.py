"""Who sits out a plan, because vLLM would not admit it?

vLLM refuses for reasons that the plan does not know, such as an encoder cache that running requests
fill. A plan that parks those for the refused one again and again would never end: they would not
run on, and so not make room.
"""

MOST_SAT_OUT = 8
"""Steps that one sits out after many refusals in a row."""
STUBBORN = 3
"""After so many in a row others may be made to give way for it."""


class Refusals:
    """How often each of those who wait was refused in a row, and until when it sits out."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        """Return how many were refused the last time that they were offered."""
        return len(self._refused)

    def note(self, request_id: str, step: int) -> None:
        """Count a refusal before `step`: after the first one it is offered again at once."""
        times = self._refused.get(request_id, (0, 0))[0] + 1
        sits_out = min(MOST_SAT_OUT, 2 ** min(times, MOST_SAT_OUT) // 4)
        self._refused[request_id] = times, step + sits_out - 1

    def forget(self, request_id: str) -> None:
        """Forget who was admitted, or has left."""
        self._refused.pop(request_id, None)

    def sitting_out(self, step: int) -> frozenset[str]:
        """Return who is not to be offered at a step."""
        return frozenset(name for name, (_, until) in self._refused.items() if until >= step)

    def stubborn(self, step: int) -> list[str]:
        """Return who is offered at a step after many refusals."""
        found = self._refused.items()
        return [name for name, (times, until) in found if times >= STUBBORN and until < step]
