"""Which rows, cache slots and blocks does one step touch?

All slices are laid out as one flat batch of tokens without padding: first those of one token,
grouped by length, then the longer chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.engine.attention import AttentionPlan, DecodeGroup, PrefillChunk
from headway.engine.runner import SequenceSlice

GROUP_SPREAD = 2
"""A decode group is split where a sequence has less than 1/2 of the blocks of its longest."""

GATHER_BYTES = 16 * 1024**2
"""A decode group is split where its gathered keys and values of one layer would take more: larger
temporary memory is returned to the system and taken from it anew at each layer."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step as tensors. T tokens, S slices that draw a token."""

    token_ids: Tensor
    """`[T]`."""
    positions: Tensor
    """`[T]`, of each token in its sequence."""
    attention: AttentionPlan
    entered_blocks: list[int]
    """Blocks that get their first token but are not filled: to be zeroed before the step."""
    sampled_rows: Tensor
    """`[S]`, the row of the last token of each slice in `sampled`."""
    sampled: tuple[SequenceSlice, ...]


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What of the cache is needed to find a slot in it."""

    block_size: int
    num_kv_heads: int
    head_dim: int
    empty_block: int
    """A block of zeros that no sequence holds."""
    dtype: torch.dtype

    @property
    def layer_block_bytes(self) -> int:
        """Bytes of one block in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.block_size * self.dtype.itemsize


def build_batch(slices: Sequence[SequenceSlice], cache: CacheShape) -> StepBatch:
    """Lay out `slices` as one batch. Their order does not matter."""
    single = [item for item in slices if item.end - item.start == 1]
    # Longest first, so that each group is a run of similar lengths.
    single.sort(key=lambda item: -item.end)
    longer = [item for item in slices if item.end - item.start > 1]
    ordered = single + longer
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last_rows = []
    for item in ordered:
        token_ids.extend(item.token_ids[item.start : item.end])
        positions.extend(range(item.start, item.end))
        slots.extend(_slots(item, cache))
        last_rows.append(len(token_ids) - 1)
    groups = _decode_groups(single, cache)
    chunks = _prefill_chunks(longer, len(single), cache)
    drawing = [(row, item) for row, item in zip(last_rows, ordered, strict=True) if item.sample]
    return StepBatch(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        attention=AttentionPlan(_write_rows(slots, cache), groups, chunks),
        entered_blocks=[block for item in ordered for block in _entered(item, cache.block_size)],
        sampled_rows=torch.tensor([row for row, _ in drawing], dtype=torch.long),
        sampled=tuple(item for _, item in drawing),
    )


def _slots(item: SequenceSlice, cache: CacheShape) -> list[int]:
    """Row of the first head's key of each token, in the cache seen as rows of head_dim."""
    size, stride = cache.block_size, 2 * cache.num_kv_heads * cache.block_size
    table = item.block_table
    return [table[at // size] * stride + at % size for at in range(item.start, item.end)]


def _write_rows(slots: list[int], cache: CacheShape) -> Tensor:
    heads = torch.arange(2 * cache.num_kv_heads) * cache.block_size
    return (torch.tensor(slots).unsqueeze(1) + heads).flatten()


def _entered(item: SequenceSlice, block_size: int) -> list[int]:
    """The last block, when this slice puts its first token there and leaves room behind."""
    first = item.end // block_size * block_size
    return [item.block_table[first // block_size]] if item.start <= first < item.end else []


def _gather_rows(tables: Sequence[Sequence[int]], cache: CacheShape) -> Tensor:
    """`[2 * sequences * heads * blocks]` of the cache seen as one row per head and block."""
    heads = cache.num_kv_heads
    table = torch.tensor(tables)[None, :, None, :] * (2 * heads)
    parts = (torch.arange(2) * heads)[:, None, None, None]
    return (table + parts + torch.arange(heads)[None, None, :, None]).flatten()


def _decode_groups(single: list[SequenceSlice], cache: CacheShape) -> tuple[DecodeGroup, ...]:
    """Runs of `single`, which is sorted by length, the longest first."""
    groups = []
    begin = 0
    for index in range(1, len(single) + 1):
        if index < len(single) and _belongs(single, begin, index, cache):
            continue
        groups.append(_decode_group(single[begin:index], begin, cache))
        begin = index
    return tuple(groups)


def _belongs(single: list[SequenceSlice], begin: int, index: int, cache: CacheShape) -> bool:
    """Whether sequence `index` may be in the group that starts with sequence `begin`."""
    width = _num_blocks(single[begin].end, cache.block_size)
    similar = _num_blocks(single[index].end, cache.block_size) * GROUP_SPREAD >= width
    return similar and (index - begin + 1) * width * cache.layer_block_bytes <= GATHER_BYTES


def _decode_group(members: list[SequenceSlice], row: int, cache: CacheShape) -> DecodeGroup:
    width = _num_blocks(members[0].end, cache.block_size)
    tables = []
    for item in members:
        blocks = list(item.block_table[: _num_blocks(item.end, cache.block_size)])
        tables.append(blocks + [cache.empty_block] * (width - len(blocks)))
    ends = torch.tensor([item.end for item in members])
    hidden = torch.arange(width * cache.block_size) >= ends.unsqueeze(1)
    mask = torch.zeros(hidden.shape, dtype=cache.dtype)
    mask = mask.masked_fill_(hidden, float("-inf")).unsqueeze(1)
    return DecodeGroup(
        rows=slice(row, row + len(members)),
        gather=_gather_rows(tables, cache),
        mask=mask,
        head_mask=mask.repeat_interleave(cache.num_kv_heads, dim=0),
    )


def _prefill_chunks(
    longer: list[SequenceSlice], row: int, cache: CacheShape
) -> tuple[PrefillChunk, ...]:
    chunks = []
    for item in longer:
        rows = slice(row, row + item.end - item.start)
        row = rows.stop
        table = list(item.block_table[: _num_blocks(item.end, cache.block_size)])
        chunks.append(PrefillChunk(rows, item.start, _gather_rows([table], cache)))
    return tuple(chunks)


def _num_blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)
