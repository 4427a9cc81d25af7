"""How does each token attend to the cached keys and values of its own sequence?

The cache is one tensor `[layers, blocks, 2, kv_heads, block_size, head_dim]` (2: key, value). In
this order the block of one head is one run of memory, so that gathering a sequence's blocks copies
long runs and yields keys and values ready for a batched product. Paged attention as in vLLM
(Kwon et al., 2023, arXiv:2309.06180), in plain PyTorch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

FEW_SEQUENCES = 4
"""Up to so many sequences the fused kernel is faster than two batched products."""


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
    """Several tokens of one sequence."""

    rows: slice
    gather: Tensor | None
    """As in DecodeGroup, for one sequence; None when the chunk begins the sequence."""
    mask: Tensor | None
    """`[tokens, length]`: what each token may see; None when the chunk begins the sequence."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """What one step attends to; the same for each layer. Rows: decode groups, then chunks."""

    write: Tensor
    """`[tokens * 2 * kv_heads]`: where keys and values go, as rows of head_dim of the cache."""
    groups: tuple[DecodeGroup, ...]
    chunks: tuple[PrefillChunk, ...]


class PagedAttention:
    """Attention of one model over its paged cache, a layer at a time."""

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.group_size = num_heads // num_kv_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5

    def __call__(self, qkv: Tensor, cache: Tensor, plan: AttentionPlan) -> Tensor:
        """Write the step's keys and values, then attend.

        `qkv` is `[tokens, (num_heads + 2 * num_kv_heads) * head_dim]`, rotated; `cache` one layer,
        `[blocks, 2, kv_heads, block_size, head_dim]`. Returns `[tokens, num_heads * head_dim]`.
        """
        split = self.num_heads * self.head_dim
        new = qkv[:, split:].reshape(-1, self.head_dim)
        cache.view(-1, self.head_dim).index_copy_(0, plan.write, new)
        blocks = cache.view(-1, cache.shape[3] * self.head_dim)
        outputs = [self._decode(qkv[group.rows, :split], blocks, group) for group in plan.groups]
        outputs += [self._prefill(qkv[chunk.rows], blocks, chunk) for chunk in plan.chunks]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _decode(self, q: Tensor, blocks: Tensor, group: DecodeGroup) -> Tensor:
        # The query heads that share a key-value head are the rows of one product, so that keys
        # and values are never repeated.
        batch, heads, length = q.shape[0], self.num_kv_heads, group.mask.shape[-1]
        k, v = blocks.index_select(0, group.gather).view(2, -1, length, self.head_dim).unbind(0)
        if batch <= FEW_SEQUENCES:
            q = q.view(batch, heads, self.group_size, self.head_dim)
            k, v = k.view(batch, heads, length, -1), v.view(batch, heads, length, -1)
            mask = group.mask.unsqueeze(1)
            out = functional.scaled_dot_product_attention(q, k, v, mask, scale=self.scale)
            return out.reshape(batch, -1)
        q = q.reshape(-1, self.group_size, self.head_dim)
        scores = torch.baddbmm(group.head_mask, q, k.transpose(1, 2), alpha=self.scale)
        return torch.bmm(torch.softmax(scores, -1), v).view(batch, -1)

    def _prefill(self, qkv: Tensor, blocks: Tensor, chunk: PrefillChunk) -> Tensor:
        # [kv_heads, query heads of each, tokens, head_dim]: keys and values are views that repeat.
        tokens, heads = qkv.shape[0], self.num_kv_heads
        split = self.num_heads * self.head_dim
        q = qkv[:, :split].view(tokens, heads, self.group_size, self.head_dim).permute(1, 2, 0, 3)
        if chunk.gather is None:
            k, v = qkv[:, split:].view(tokens, 2, heads, self.head_dim).permute(1, 2, 0, 3)
        else:
            k, v = blocks.index_select(0, chunk.gather).view(2, heads, -1, self.head_dim)
        k = k.unsqueeze(1).expand(-1, self.group_size, -1, -1)
        v = v.unsqueeze(1).expand(-1, self.group_size, -1, -1)
        out = functional.scaled_dot_product_attention(
            q, k, v, chunk.mask, is_causal=chunk.mask is None, scale=self.scale
        )
        return out.permute(2, 0, 1, 3).reshape(tokens, split)
