"""Is a step laid out so that every token finds its rows, slots and blocks?"""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.attention import DecodeGroup, PrefillChunk
from headway.engine.runner import SequenceSlice
from headway.engine.sampling_params import SamplingParams
from headway.engine.step_batch import GATHER_BYTES, GROUP_SPREAD, CacheShape, build_batch

CACHE = CacheShape(block_size=4, num_kv_heads=2, head_dim=8, empty_block=500, dtype=torch.float32)


def _slice(name: str, start: int, end: int, table: list[int]) -> SequenceSlice:
    tokens = [1000 + position for position in range(end)]
    return SequenceSlice(name, tokens, 1, start, end, table, True, SamplingParams(), 0)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_rows_slots_and_blocks(spans: list[tuple[int, int]]) -> None:
    blocks = list(range(500))
    random.Random(0).shuffle(blocks)
    slices = []
    for index, (start, length) in enumerate(spans):
        count = -(-(start + length) // 4)
        slices.append(_slice(str(index), start, start + length, blocks[:count]))
        blocks = blocks[count:]
    batch = build_batch(slices, CACHE)
    plan = batch.attention
    # Groups, then chunks, cover all rows once and in order.
    parts: list[DecodeGroup | PrefillChunk] = [*plan.groups, *plan.chunks]
    edges = [0, *(part.rows.stop for part in parts)]
    assert [part.rows.start for part in parts] == edges[:-1]
    assert edges[-1] == len(batch.token_ids) == sum(length for _, length in spans)
    assert torch.equal(batch.token_ids, batch.positions + 1000)
    # Each sampled row holds the last token of its slice; its keys go to that token's slot.
    by_name = {item.sequence_id: item for item in slices}
    assert {item.sequence_id for item in batch.sampled} == set(by_name)
    write = plan.write.view(-1, 2, CACHE.num_kv_heads)
    for row, item in zip(batch.sampled_rows.tolist(), batch.sampled, strict=True):
        last = item.end - 1
        assert batch.positions[row] == last
        for part in range(2):
            for head in range(CACHE.num_kv_heads):
                block_row = (item.block_table[last // 4] * 2 + part) * CACHE.num_kv_heads + head
                assert write[row, part, head] == block_row * 4 + last % 4
    assert len(set(plan.write.tolist())) == len(plan.write)
    entered = {
        item.block_table[-1] for item in slices if item.start <= item.end // 4 * 4 < item.end
    }
    assert set(batch.entered_blocks) == entered


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60))
@settings(max_examples=100, deadline=None)
def test_decode_groups_are_of_similar_length(ends: list[int]) -> None:
    slices = [_slice(str(i), end - 1, end, list(range(100))) for i, end in enumerate(ends)]
    longest_first = sorted(ends, reverse=True)
    for group in build_batch(slices, CACHE).attention.groups:
        members = [-(-end // 4) for end in longest_first[group.rows]]
        assert min(members) * GROUP_SPREAD >= max(members)
        assert group.mask.shape == (len(members), 1, max(members) * 4)
        seen = (group.mask == 0).sum(-1).flatten().tolist()
        assert seen == longest_first[group.rows]
        table = group.gather.view(2, len(members), CACHE.num_kv_heads, -1)[0, :, 0] // 4
        for row, count in zip(table.tolist(), members, strict=True):
            assert row == [*range(count), *[500] * (max(members) - count)]


def test_a_group_is_split_where_it_would_gather_too_much() -> None:
    many, length = 40, 4096
    slices = [_slice(str(i), length - 1, length, list(range(length // 4))) for i in range(many)]
    groups = build_batch(slices, CACHE).attention.groups
    sizes = [group.gather.numel() * 4 * CACHE.head_dim * 4 for group in groups]
    assert len(groups) > 1
    assert max(sizes) <= GATHER_BYTES < max(sizes) + sizes[0] // (groups[0].rows.stop)
    huge = _slice("huge", 10**5, 10**5 + 1, list(range(25001)))
    assert len(build_batch([huge], CACHE).attention.groups) == 1


@pytest.mark.parametrize(
    ("start", "end", "entered"),
    [(0, 4, []), (0, 3, [7]), (3, 4, []), (4, 5, [8]), (0, 5, [8]), (5, 6, []), (2, 8, [])],
)
def test_only_a_block_that_is_entered_and_not_filled_is_zeroed(
    start: int, end: int, entered: list[int]
) -> None:
    assert build_batch([_slice("a", start, end, [7, 8])], CACHE).entered_blocks == entered
