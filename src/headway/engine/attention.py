"""How does each token attend to the cached keys and values of its own sequence?

The cache is one tensor `[layers, blocks, 2, kv_heads, block_size, head_dim]` (2: key, value). In
this order the block of one head is one run of memory, so that gathering a sequence's blocks copies
long runs and yields keys and values ready for a batched product. Paged attention as in vLLM
(Kwon et al., 2023, arXiv:2309.06180), in plain PyTorch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from headway.engine.model_config import ModelConfig

FEW_SEQUENCES = 4
"""Up to so many sequences the fused kernel is faster than two batched products."""

TILE = 128
"""Tokens of a prefill chunk that attend at a time."""


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences of similar length that compute one token each; row i is sequence i."""

    rows: slice
    gather: Tensor
    """`[2 * sequences * kv_heads * blocks]`: rows of the cache seen as one row per head and block,
    in the order key/value, sequence, head, block. Short sequences are padded by the empty block."""
    mask: Tensor
    """`[sequences, 1, length]`, 0 where a position may be seen, minus infinity after its end."""
    head_mask: Tensor
    """`mask` repeated for each key-value head: `[sequences * kv_heads, 1, length]`."""


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several tokens of one sequence, from position `start` on."""

    rows: slice
    start: int
    gather: Tensor
    """As in DecodeGroup, for this one sequence."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What one step attends to; the same for each layer. Rows: decode groups, then chunks."""

    write: Tensor
    """`[tokens * 2 * kv_heads]`: where keys and values go, as rows of head_dim of the cache."""
    groups: tuple[DecodeGroup, ...]
    chunks: tuple[PrefillChunk, ...]


class PagedAttention:
    """Attention of one model over its paged cache, a layer at a time.

    Queries come scaled by `head_dim ** -0.5` already. The query heads that share a key-value head
    are rows of one product, so that keys and values are never repeated.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self._heads = config.num_kv_heads
        self._group_size = config.num_heads // config.num_kv_heads
        self._head_dim = config.head_dim
        self._q_size = config.num_heads * config.head_dim
        # Within a tile, what lies after each of its tokens: [TILE, TILE].
        self._future = torch.full((TILE, TILE), float("-inf"), dtype=dtype).triu_(1)

    def __call__(self, qkv: Tensor, cache: Tensor, plan: AttentionPlan) -> Tensor:
        """Write the step's keys and values, then attend.

        `qkv` is `[tokens, (num_heads + 2 * num_kv_heads) * head_dim]`, rotated; `cache` one layer,
        `[blocks, 2, kv_heads, block_size, head_dim]`. Returns `[tokens, num_heads * head_dim]`.
        """
        new = qkv[:, self._q_size :].reshape(-1, self._head_dim)
        cache.view(-1, self._head_dim).index_copy_(0, plan.write, new)
        blocks = cache.view(-1, cache.shape[3] * self._head_dim)
        outputs = [self._decode(qkv[group.rows], blocks, group) for group in plan.groups]
        for chunk in plan.chunks:
            outputs += self._prefill(qkv[chunk.rows], blocks, chunk)
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _decode(self, qkv: Tensor, blocks: Tensor, group: DecodeGroup) -> Tensor:
        batch, length = qkv.shape[0], group.mask.shape[-1]
        shape = (2, batch, self._heads, length, self._head_dim)
        k, v = blocks.index_select(0, group.gather).view(shape).unbind(0)
        q = qkv[:, : self._q_size].view(batch, self._heads, self._group_size, self._head_dim)
        if batch <= FEW_SEQUENCES:
            mask = group.mask.unsqueeze(1)
            out = functional.scaled_dot_product_attention(q, k, v, mask, scale=1.0)
            return out.reshape(batch, -1)
        scores = torch.baddbmm(group.head_mask, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
        return torch.bmm(torch.softmax(scores, -1), v.flatten(0, 1)).view(batch, -1)

    def _prefill(self, qkv: Tensor, blocks: Tensor, chunk: PrefillChunk) -> list[Tensor]:
        shape = (2, self._heads, -1, self._head_dim)
        k, v = blocks.index_select(0, chunk.gather).view(shape).unbind(0)
        return [
            self._tile(q, k[:, :seen], v[:, :seen])
            for q, seen in _tiles(qkv[:, : self._q_size], chunk.start)
        ]

    def _tile(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of consecutive tokens, the last of which is that of the last key.

        Tile by tile, no product is computed for keys after the tile, and scores fit the cache of
        the processor.
        """
        tokens = q.shape[0]
        shape = (tokens, self._heads, self._group_size, self._head_dim)
        rows = q.view(shape).transpose(0, 1).reshape(self._heads, -1, self._head_dim)
        scores = torch.bmm(rows, k.transpose(1, 2))
        own = scores[:, :, -tokens:].view(self._heads, tokens, self._group_size, tokens)
        own.add_(self._future[:tokens, :tokens].unsqueeze(1))
        out = torch.bmm(torch.softmax(scores, -1), v)
        return out.view(self._heads, tokens, -1).transpose(0, 1).reshape(tokens, -1)


def _tiles(q: Tensor, start: int) -> Iterator[tuple[Tensor, int]]:
    """Queries of up to TILE tokens, and how many keys the last of them sees."""
    for begin in range(0, q.shape[0], TILE):
        tile = q[begin : begin + TILE]
        yield tile, start + begin + tile.shape[0]
