"""Who sits out a plan, because vLLM did nothing for it?

vLLM refuses for reasons that the plan does not know, such as an encoder cache that running requests
fill. A plan that parks those for the refused one again and again would never end: they would not
run on, and so not make room.
"""

MOST_SAT_OUT = 8
"""Steps that one sits out after many refusals in a row."""
STUBBORN = 3
"""After so many in a row others may be made to give way for it."""


class Refusals:
    """How often each request was refused in a row, and until when it sits out."""

    def __init__(self) -> None:
        self._refused: dict[str, tuple[int, int]] = {}
        self.stubborn: str | None = None
        """Who was just refused again after many refusals, until somebody has given way for it."""

    def __len__(self) -> int:
        """Return how many were refused the last time that they were planned for."""
        return len(self._refused)

    def __contains__(self, request_id: object) -> bool:
        """Return whether the request was refused the last time."""
        return request_id in self._refused

    def note(self, request_id: str, step: int) -> None:
        """Count a refusal before `step`: after the first one it is planned for again at once."""
        times = self._refused.get(request_id, (0, 0))[0] + 1
        sits_out = min(MOST_SAT_OUT, 2 ** min(times, MOST_SAT_OUT) // 4)
        self._refused[request_id] = times, step + sits_out - 1
        if times >= STUBBORN:
            self.stubborn = request_id

    def forget(self, request_id: str) -> None:
        """Forget who was served, or has left."""
        self._refused.pop(request_id, None)
        if self.stubborn == request_id:
            self.stubborn = None

    def sitting_out(self, step: int) -> frozenset[str]:
        """Return for whom nothing is to be planned at a step."""
        return frozenset(name for name, (_, until) in self._refused.items() if until >= step)
