"""What does the decoder compute for a flat batch of tokens?

One decoder for the Llama, Mistral, Qwen2 and Qwen3 families: they differ only in what ModelConfig
says. Reference: `modeling_llama.py` and its siblings in Hugging Face transformers.
"""

import torch
from torch import Tensor
from torch.nn import functional

from headway.engine.attention import AttentionPlan, PagedAttention
from headway.engine.linear import Linear
from headway.engine.model_config import ModelConfig
from headway.engine.weights import LayerWeights, WeightSource, load_head, load_layer


class RMSNorm:
    """`x / sqrt(mean(x**2) + eps)` for each row; the gain is folded into the next matrix.

    Normalising a batch in inference mode is `x * 1 / sqrt(var + eps)` with a given variance: with
    each row as its own channel, and its mean square as the variance, this is one pass over `x`
    that computes in float32 whatever the type of `x`.
    """

    def __init__(self, size: int, eps: float) -> None:
        self._eps = eps
        self._share = 1.0 / size
        self._zero = torch.zeros(1)
        self._zeros = torch.zeros(1)

    def __call__(self, x: Tensor) -> Tensor:
        """`x` is `[rows, size]`."""
        rows = x.shape[0]
        if self._zeros.shape[0] < rows:
            self._zeros = torch.zeros(rows)
        norm = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float32)
        mean_square = torch.addcmul(self._zero, norm, norm, value=self._share)
        return torch.batch_norm(
            x.unsqueeze(0),
            None,
            None,
            self._zeros[:rows],
            mean_square,
            False,
            0.0,
            self._eps,
            False,
        ).squeeze(0)


class Rotary:
    """Rotates neighbours `(x[2i], x[2i+1])` of each head by `position * frequency[i]`, in float32.

    Rotary embedding as in Su et al., 2021 (arXiv:2104.09864), as a product of complex numbers.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._head_dim = config.head_dim
        exponents = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        self._frequencies = 1.0 / config.rope_theta**exponents
        if config.rope_factors:
            self._frequencies /= torch.tensor(config.rope_factors)

    def turns(self, positions: Tensor) -> Tensor:
        """The complex factors of each position: `[tokens, 1, head_dim / 2]`."""
        angles = positions.float().unsqueeze(1) * self._frequencies
        return torch.polar(torch.ones_like(angles), angles).unsqueeze(1)

    def rotate_(self, x: Tensor, turns: Tensor) -> None:
        """Rotate all heads of `x`, `[tokens, heads * head_dim]`, in place."""
        exact = x.float()
        pairs = exact.view(x.shape[0], -1, self._head_dim // 2, 2)
        torch.view_as_complex(pairs).mul_(turns)
        if exact is not x:
            x.copy_(exact)


class DecoderLayer:
    """Attention, then the gated MLP, each behind a norm and added to what came in."""

    def __init__(self, config: ModelConfig, weights: LayerWeights, dtype: torch.dtype) -> None:
        self._qkv = Linear(weights.qkv, weights.qkv_bias, dtype)
        self._output = Linear(weights.output, weights.output_bias, dtype)
        self._gate = Linear(weights.gate, None, dtype)
        self._up = Linear(weights.up, None, dtype)
        self._down = Linear(weights.down, None, dtype)
        self._qk_gain = weights.qk_gain
        self._eps = config.rms_norm_eps
        self._head_dim = config.head_dim
        self._num_rotated = (config.num_heads + config.num_kv_heads) * config.head_dim

    def qkv(self, normed: Tensor, rotary: Rotary, turns: Tensor) -> Tensor:
        """Queries, keys and values of all heads, side by side, rotated."""
        qkv = self._qkv(normed)
        qk = qkv[:, : self._num_rotated]
        if self._qk_gain is not None:
            heads = qk.view(qk.shape[0], -1, self._head_dim)
            exact = functional.rms_norm(heads.float(), (self._head_dim,), None, self._eps)
            heads.copy_(exact.mul_(self._qk_gain))
        rotary.rotate_(qk, turns)
        return qkv

    def output(self, attended: Tensor, x: Tensor) -> Tensor:
        """What attention adds to `x`."""
        return self._output.plus(attended, x)

    def mlp(self, normed: Tensor, x: Tensor) -> Tensor:
        """What the MLP adds to `x`."""
        return self._down.plus(self._up.times(normed, self._gate.silu(normed)), x)


class Transformer:
    """The whole decoder, with its weights in `dtype`."""

    def __init__(self, source: WeightSource, dtype: torch.dtype) -> None:
        config = source.config
        self.config = config
        self.dtype = dtype
        self._layers = [
            DecoderLayer(config, load_layer(source, index), dtype)
            for index in range(config.num_layers)
        ]
        embedding, head = load_head(source)
        self._embedding = embedding.to(dtype)
        self._head = Linear(head, None, dtype)
        self._norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self._rotary = Rotary(config)
        self._attention = PagedAttention(config, dtype)

    def forward(
        self, token_ids: Tensor, positions: Tensor, plan: AttentionPlan, cache: Tensor, rows: Tensor
    ) -> Tensor:
        """Compute `[tokens]` tokens, writing to `cache`; logits of `rows` only.

        `cache` is `[layers, blocks, 2, kv_heads, block_size, head_dim]`. Returns `[rows, vocab]`
        in the model's dtype.
        """
        x = functional.embedding(token_ids, self._embedding)
        turns = self._rotary.turns(positions)
        for layer, layer_cache in zip(self._layers, cache.unbind(0), strict=True):
            qkv = layer.qkv(self._norm(x), self._rotary, turns)
            x = layer.output(self._attention(qkv, layer_cache, plan), x)
            x = layer.mlp(self._norm(x), x)
        return self._head(self._norm(x.index_select(0, rows)))
