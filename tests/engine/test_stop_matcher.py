"""Stop strings: fault C2 of the reference, for any split of any text."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.engine.stop_matcher import StopMatcher

TEXT = st.text(alphabet="abé\n", max_size=40)
STOPS = st.lists(st.text(alphabet="abé\n", min_size=1, max_size=6), max_size=4)


def expected(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """Cut by definition: the first end at which a stop is complete, there the longest stop."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: list[str], include: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include)
    shown = "".join(map(matcher.push, pieces))
    return shown + matcher.finish(), matcher.matched


@settings(deadline=None)
@given(st.lists(TEXT, max_size=12), STOPS, st.booleans())
@example(["aab", "aa", "b"], ["abaab"], False)
def test_any_split_gives_what_the_definition_says(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    text = "".join(pieces)
    answer = expected(text, stops, include)
    assert run(pieces, stops, include) == answer
    assert run(list(text), stops, include) == answer
    assert run([text], stops, include) == answer


@settings(deadline=None)
@given(TEXT, STOPS)
def test_holds_back_only_what_could_begin_a_stop(text: str, stops: list[str]) -> None:
    matcher = StopMatcher(stops, include=False)
    shown = ""
    for end, character in enumerate(text, start=1):
        shown += matcher.push(character)
        if matcher.matched is not None:
            return
        ends = text[:end]
        begun = [n for stop in stops for n in range(len(stop)) if ends.endswith(stop[:n])]
        assert shown == ends[: end - max(begun, default=0)]


def test_stop_over_several_pieces_never_shows() -> None:
    pieces = ["Hello", " wor", "ld#", "##EN", "D tail"]
    matcher = StopMatcher(["###END"], include=False)
    assert [matcher.push(piece) for piece in pieces] == ["Hello", " wor", "ld", "", ""]
    assert matcher.matched == "###END"
    assert matcher.finish() == ""


def test_stop_in_the_first_piece() -> None:
    assert run(["END of it", " all"], ["END"]) == ("", "END")


def test_stop_is_the_whole_text() -> None:
    assert run(["EN", "D"], ["END"]) == ("", "END")


def test_of_a_stop_and_its_prefix_the_prefix_completes_first() -> None:
    assert run(["say stop", "ped"], ["stopped", "stop"]) == ("say ", "stop")


def test_of_two_stops_complete_together_the_longer_wins() -> None:
    assert run(["abc", "d"], ["cd", "bcd"]) == ("a", "bcd")


def test_shorter_stop_inside_a_longer_one_that_fails() -> None:
    assert run(["xab", "c!"], ["abcd", "bc"]) == ("xa", "bc")


def test_multibyte_characters_in_a_stop() -> None:
    assert run(["naï", "ve 👩‍", "👩 end"], ["👩‍👩"]) == ("naïve ", "👩‍👩")


def test_held_tail_is_flushed_when_the_text_ends() -> None:
    matcher = StopMatcher(["###END"], include=False)
    assert matcher.push("abc##") == "abc"
    assert matcher.finish() == "##"
    assert matcher.finish() == ""


def test_include_keeps_the_stop_and_nothing_after_it() -> None:
    assert run(["a", "E", "ND", "b"], ["END"], include=True) == ("aEND", "END")


def test_nothing_is_shown_after_a_match() -> None:
    matcher = StopMatcher(["x"], include=False)
    assert matcher.push("ax") == "a"
    assert matcher.push("more x") == ""
    assert matcher.finish() == ""


def test_without_stops_all_passes() -> None:
    assert run(["a", "", "b"], []) == ("ab", None)


def test_text_not_pushed_is_not_searched() -> None:
    """The engine keeps text before min_tokens away from the matcher."""
    matcher = StopMatcher(["ab"], include=False)
    assert "a" + matcher.push("b") + matcher.finish() == "ab"
    assert matcher.matched is None


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""], include=False)


def test_huge_self_similar_stops_take_linear_time() -> None:
    """Work quadratic in the stop's length would run into the suite's time limit."""
    size = 2**16
    stops = [mark.join(["a" * (size - 2), "b"]) for mark in "cdef"]
    matcher = StopMatcher(stops, include=False)
    text = "a" * (3 * size)
    shown = "".join(matcher.push(character) for character in text)
    assert len(shown) == len(text) - (size - 2)
    assert matcher.push("c") == ""
    assert matcher.push("b") == ""
    assert matcher.matched == stops[0]
    assert len(shown) == len(text) - (size - 2)
