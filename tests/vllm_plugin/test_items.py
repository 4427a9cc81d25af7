"""Is no image cut in two, and is every prompt computed to its end?"""

from dataclasses import dataclass
from itertools import zip_longest

from hypothesis import given
from hypothesis import strategies as st

from headway.vllm_plugin.items import whole_items


@dataclass(frozen=True)
class Position:
    offset: int
    length: int

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True)
class Item:
    mm_position: Position


def as_vllm(items: list[Item], start: int, num_tokens: int, lookahead: int) -> int:
    """Return how many of so many tokens vLLM computes that cuts no item: none of the next one."""
    for item in items:
        begin, end = item.mm_position.offset, item.mm_position.end
        reached = begin < start + num_tokens + lookahead
        if reached and start < begin and start + num_tokens < end:
            return max(0, begin - start - lookahead)
    return num_tokens


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=6),
    st.integers(0, 9),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_a_prompt_ends_and_no_chunk_ends_in_an_item(
    texts_and_items: list[tuple[int, int]], text_after: int, cap: int, lookahead: int
) -> None:
    """But for the last `lookahead` tokens of one that another one follows at once."""
    items: list[Item] = []
    at = 0
    for text, length in texts_and_items:
        items.append(Item(Position(at + text, length)))
        at += text + length
    length, start = at + text_after, 0
    while start < length:
        asked = whole_items(items, start, min(cap, length - start), length, lookahead=lookahead)
        chunk = as_vllm(items, start, asked, lookahead)
        assert 0 < chunk <= asked <= length - start
        end = start + chunk
        for item, following in zip_longest(items, items[1:]):
            item_end = item.mm_position.end
            if following is not None:
                item_end = min(item_end, following.mm_position.offset - lookahead)
            assert not item.mm_position.offset < end < item_end
        start = end


def test_an_item_that_is_longer_than_there_is_room_for_waits() -> None:
    items = [Item(Position(4, 10))]
    assert as_vllm(items, 0, whole_items(items, 0, 8, longest=8), 0) == 4
    assert whole_items(items, 4, 8, longest=9) == 0
    assert whole_items(items, 4, 8, longest=10) == 10
    assert whole_items(items, 14, 8, longest=8) == 8


def test_an_item_whose_first_tokens_were_cached_is_not_cut_again() -> None:
    assert whole_items([Item(Position(0, 30))], 16, 3, longest=64) == 14
    assert whole_items([Item(Position(0, 30))], 16, 3, longest=13) == 0


def test_an_item_at_once_behind_the_chunk_is_taken_whole() -> None:
    """A draft model looks one token ahead: from the last token before an item there is no stop."""
    items = [Item(Position(100, 2000))]
    assert as_vllm(items, 0, whole_items(items, 0, 512, 2048, lookahead=1), 1) == 99
    assert whole_items(items, 99, 512, 2048, lookahead=1) == 2001
