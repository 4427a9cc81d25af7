"""Is no image cut in two, and is every prompt computed to its end?"""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from headway.vllm_plugin.items import whole_items


@dataclass(frozen=True)
class Position:
    offset: int
    length: int


@dataclass(frozen=True)
class Item:
    mm_position: Position


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=6),
    st.integers(0, 9),
    st.integers(1, 12),
)
def test_a_prompt_ends_and_no_chunk_ends_in_an_item(
    texts_and_items: list[tuple[int, int]], text_after: int, cap: int
) -> None:
    items: list[Item] = []
    at = 0
    for text, length in texts_and_items:
        items.append(Item(Position(at + text, length)))
        at += text + length
    length, start = at + text_after, 0
    while start < length:
        chunk = whole_items(items, start, min(cap, length - start), length)
        assert 0 < chunk <= length - start
        end = start + chunk
        for position in (item.mm_position for item in items):
            assert not position.offset < end < position.offset + position.length
        assert chunk <= cap or any(item.mm_position.offset == start for item in items)
        start = end


def test_an_item_that_is_longer_than_there_is_room_for_waits() -> None:
    items = [Item(Position(4, 10))]
    assert whole_items(items, 0, 8, longest=8) == 4
    assert whole_items(items, 4, 8, longest=9) == 0
    assert whole_items(items, 4, 8, longest=10) == 10
    assert whole_items(items, 14, 8, longest=8) == 8
