"""Does the text end here, and which part of it may already be shown?

A stop string may span any number of tokens, so the end of the text is held back while it could
still be the beginning of a stop. Each stop is followed by the algorithm of Knuth, Morris and Pratt,
whose failure table grows only as far as the text has ever matched: building a matcher costs
nothing, and the work is linear in the text, whatever the stops are.
"""

from array import array
from collections import deque
from collections.abc import Sequence


class StopMatcher:
    """Cuts a stream of text at the first stop string.

    The match that is complete first wins; of those complete at the same character, the longest.
    So the result does not depend on how the text was split. Text that must not be searched (before
    `min_tokens`) is simply not pushed. `include` keeps the stop string itself in the text.
    """

    def __init__(self, stops: Sequence[str], include: bool) -> None:
        """Raise ValueError when a stop is empty."""
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._needles = [_Needle(stop) for stop in stops]
        self._include = include
        self._held: deque[str] = deque()
        """Characters not shown yet: the longest beginning of a stop that the text ends with."""
        self.matched: str | None = None
        """The stop string that was found, if one was."""

    def push(self, text: str) -> str:
        """Add text; return what is now certain to be shown. After a match that is nothing."""
        if self.matched is not None:
            return ""
        match = self._search(text)
        if match is not None:
            self.matched, end = match
            self._held.extend(text[:end])
            shown = self._release(0 if self._include else len(self.matched))
            self._held.clear()
            return shown
        keep = max((needle.length for needle in self._needles), default=0)
        if keep == 0 and not self._held:
            return text
        self._held.extend(text)
        return self._release(keep)

    def finish(self) -> str:
        """Return the text held back, now that nothing follows it."""
        return self._release(0)

    def _release(self, keep: int) -> str:
        """Take all but the last `keep` characters out of what is held."""
        held = self._held
        return "".join(held.popleft() for _ in range(len(held) - keep))

    def _search(self, text: str) -> tuple[str, int] | None:
        """Return the stop that is complete in `text`, and the index just after it."""
        match: tuple[str, int] | None = None
        for needle in self._needles:
            limit = len(text) if match is None else match[1]
            end = needle.feed(text, limit)
            if end is None:
                continue
            if match is None or end < limit or len(needle.stop) > len(match[0]):
                match = needle.stop, end
        return match


class _Needle:
    """One stop string, and how much of it the text so far ends with."""

    __slots__ = ("_failure", "length", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.length = 0
        # _failure[j]: the longest proper prefix of the stop that its first j + 1 characters end
        # with. Entries exist up to the longest match there has been.
        self._failure = array("i", [0])

    def feed(self, text: str, limit: int) -> int | None:
        """Read `text[:limit]`; return the index just after the stop when it becomes complete."""
        stop, length, i = self.stop, self.length, 0
        while i < limit:
            if length == 0:
                i = text.find(stop[0], i, limit)
                if i < 0:
                    break
            length = self._advance(length, text[i])
            i += 1
            if length == len(stop):
                self.length = 0
                return i
        self.length = length
        return None

    def _advance(self, length: int, char: str) -> int:
        """Return the length matched after `char`. `length` is less than the stop's."""
        stop, failure = self.stop, self._failure
        while length and stop[length] != char:
            length = failure[length - 1]
        if stop[length] == char:
            length += 1
        while len(failure) < length:
            failure.append(self._border(len(failure)))
        return length

    def _border(self, index: int) -> int:
        stop, failure = self.stop, self._failure
        border = failure[index - 1]
        while border and stop[border] != stop[index]:
            border = failure[border - 1]
        return border + 1 if stop[border] == stop[index] else border
