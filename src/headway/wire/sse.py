"""Where does one server-sent event end and the next begin?

The event stream format of the WHATWG HTML standard, section 9.2, as far as these APIs use it: the
`data` of each event. `SSEParser` works on bytes, so a cut inside a character is no special case.
"""

DONE = b"data: [DONE]\n\n"
"""The frame that ends an OpenAI stream."""

COMMENT = b": keep-alive\n\n"
"""A frame without meaning; it keeps idle time-outs on the way from cutting the stream."""

DEFAULT_MAX_EVENT_BYTES = 8 * 1024 * 1024


class EventTooLargeError(ValueError):
    """One event is over the parser's bound."""


def frame(data: bytes) -> bytes:
    """Return `data`, which holds no line break (JSON never does), as one event."""
    return b"data: " + data + b"\n\n"


class SSEParser:
    """Feeds on reads of any size, yields the data of each whole event."""

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self._max = max_event_bytes
        self._rest = bytearray()
        """Bytes of the line that is not complete yet."""
        self._scanned = 0
        """How many bytes of `_rest` are known to hold no line end."""
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the data of the events that they complete.

        Raises EventTooLargeError once an event is over `max_event_bytes`, complete or not.
        """
        self._rest += chunk
        events: list[bytes] = []
        while (line := self._next_line()) is not None:
            if line:
                self._take_line(line)
            elif self._data:
                events.append(self._take_event())
            self._started = True
        if self._size + len(self._rest) > self._max:
            raise EventTooLargeError(f"an event of more than {self._max} bytes")
        return events

    def finish(self) -> list[bytes]:
        """Return the last event when the stream ended without the blank line after it."""
        if self._rest:
            line = bytes(self._rest)
            self._rest.clear()
            self._scanned = 0
            self._take_line(line)
        return [self._take_event()] if self._data else []

    def _next_line(self) -> bytes | None:
        """Cut the next line off, ended by LF, CR or CRLF, without its end."""
        if self._after_cr and self._rest:
            # The LF of a CRLF may come in a later read; CR alone has ended the line already.
            self._after_cr = False
            if self._rest[0] == 0x0A:
                del self._rest[0]
        end = self._line_end()
        if end < 0:
            self._scanned = len(self._rest)
            return None
        line = bytes(self._rest[:end])
        self._after_cr = self._rest[end] == 0x0D
        del self._rest[: end + 1]
        self._scanned = 0
        return line

    def _line_end(self) -> int:
        lf = self._rest.find(b"\n", self._scanned)
        cr = self._rest.find(b"\r", self._scanned, lf if lf >= 0 else len(self._rest))
        return cr if cr >= 0 else lf

    def _take_line(self, line: bytes) -> None:
        if not self._started:
            line = line.removeprefix(b"\xef\xbb\xbf")
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        value = value.removeprefix(b" ")
        self._data.append(value)
        self._size += len(value)
        if self._size > self._max:
            raise EventTooLargeError(f"an event of more than {self._max} bytes")

    def _take_event(self) -> bytes:
        data = b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        return data
