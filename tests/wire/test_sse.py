"""Does any cut of an event stream give the same events?"""

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire.sse import COMMENT, DONE, EventTooLargeError, SSEParser, frame

STREAM = b"".join(frame(f'{{"at":{at},"text":"你好世界 👩‍👩‍👧 é"}}'.encode()) for at in range(50))


def parse(chunks: Sequence[bytes], max_event_bytes: int = 1 << 20) -> list[bytes]:
    parser = SSEParser(max_event_bytes)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.finish()


def reference(stream: bytes) -> list[bytes]:
    """The rules of the standard, written for a stream that is there as a whole."""
    events: list[bytes] = []
    data: list[bytes] = []
    for line in re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf")):
        if line == b"":
            if data:
                events.append(b"\n".join(data))
            data = []
        elif re.match(rb"data(:|$)", line):
            data.append(re.sub(rb"^data:? ?", b"", line))
    return [*events, b"\n".join(data)] if data else events


def cut(stream: bytes, size: int) -> list[bytes]:
    return [stream[at : at + size] for at in range(0, len(stream), size)]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096, 1 << 20])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_payloads_are_the_same_in_every_cut(size: int, line_end: bytes) -> None:
    stream = (COMMENT + STREAM + DONE).replace(b"\n", line_end)
    events = parse(cut(stream, size))
    assert len(events) == 51
    assert b"".join(map(frame, events)) == STREAM + DONE


def test_a_last_event_without_a_blank_line_is_given() -> None:
    assert parse([b"data: a\n\ndata: b\n"]) == [b"a", b"b"]
    assert parse([b"data: a\n\ndata: b"]) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data:x\n\n", [b"x"]),
        (b"data:  x\n\n", [b" x"]),
        (b"data\n\n", [b""]),
        (b"data:\n\n", [b""]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": comment\n\n", []),
        (b"event: e\nid: 1\nretry: 5\n\n", []),
        (b"event: e\ndata: x\n\n", [b"x"]),
        (b"database: x\n\n", []),
        (b"\xef\xbb\xbfdata: x\n\n", [b"x"]),
        (b"\n\xef\xbb\xbfdata: x\n\n", []),
        (b"\n\n\ndata: x\n\n\n\n", [b"x"]),
        (b"data: x\r\r\ndata: y\r\n\r", [b"x", b"y"]),
        (b"", []),
    ],
)
def test_shapes_of_events(stream: bytes, events: list[bytes]) -> None:
    assert parse([stream]) == events
    assert parse(cut(stream, 1)) == events


def test_an_event_of_300_kb_passes_and_one_over_the_bound_is_refused_early() -> None:
    giant = frame(b"x" * 300_000)
    assert parse(cut(giant, 1000)) == [b"x" * 300_000]
    unended = [b"data: " + b"x" * 500] * 3
    with pytest.raises(EventTooLargeError):
        parse(unended, max_event_bytes=1000)
    many_lines = [b"data: 12345\n"] * 300
    with pytest.raises(EventTooLargeError):
        parse(many_lines, max_event_bytes=1000)


PIECES = st.sampled_from(
    [
        *(b"data: ", b"data:", b"data", b"x", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n"),
        *(b"event: e", "é".encode(), b"\xef\xbb\xbf", b"\x00"),
    ]
)


@given(pieces=st.lists(PIECES, max_size=30), cuts=st.lists(st.integers(0, 100), max_size=10))
def test_any_split_equals_the_whole(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    edges = [0, *sorted(min(edge, len(stream)) for edge in cuts), len(stream)]
    chunks = [stream[low:high] for low, high in pairwise(edges)]
    assert parse(chunks) == parse([stream]) == reference(stream)
