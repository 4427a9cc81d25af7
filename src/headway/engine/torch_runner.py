"""How does a real model compute one iteration on the CPU?"""

from collections.abc import Sequence

import torch

from headway.engine.gguf_file import GGUFWeights
from headway.engine.hf_folder import HFWeights
from headway.engine.machine import available_bytes, multiplies_bf16
from headway.engine.model_config import ModelConfig
from headway.engine.model_source import ModelFormat, ModelSource
from headway.engine.runner import SequenceSlice, StepResult
from headway.engine.sampler import sample
from headway.engine.step_batch import CacheShape, build_batch
from headway.engine.transformer import Transformer
from headway.engine.weights import WeightSource
from headway.errors import ModelLoadError

DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
}
DEFAULT_CACHE_BYTES = 2 * 1024**3
DEFAULT_CACHE_SHARE = 0.25
"""The cache takes DEFAULT_CACHE_BYTES, or this share of the memory that is available, if less."""


class TorchRunner:
    """A decoder with its KV pool; a ModelRunner.

    `num_blocks` blocks of `block_size` tokens; the pool is zeroed, so that its memory is taken as
    it is first written. Not thread safe: one thread at a time calls `execute`.
    """

    def __init__(
        self, model: Transformer, *, num_blocks: int, block_size: int, max_model_len: int
    ) -> None:
        config = model.config
        self.vocab_size = config.vocab_size
        self.max_model_len = max_model_len
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = model.dtype
        self._model = model
        # One more block than the pool has: it stays zero and pads short sequences.
        self._cache_shape = CacheShape(
            block_size, config.num_kv_heads, config.head_dim, num_blocks, model.dtype
        )
        shape = (2, config.num_kv_heads, block_size, config.head_dim)
        self._cache = torch.zeros(config.num_layers, num_blocks + 1, *shape, dtype=model.dtype)

    @torch.inference_mode()
    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """Copy blocks `(source, destination)`, in order, then compute all slices in one pass."""
        for source, destination in copies:
            self._cache[:, destination].copy_(self._cache[:, source])
        if not slices:
            return StepResult()
        batch = build_batch(slices, self._cache_shape)
        if batch.entered_blocks:
            # What the last holder left behind is masked, but a mask does not hide NaN.
            self._cache.index_fill_(1, torch.tensor(batch.entered_blocks), 0.0)
        logits = self._model.forward(
            batch.token_ids, batch.positions, batch.attention, self._cache, batch.sampled_rows
        )
        return sample(logits, batch.sampled) if batch.sampled else StepResult()


def load_runner(
    source: ModelSource,
    *,
    dtype: str = "auto",
    num_kv_blocks: int | None = None,
    block_size: int = 16,
    max_model_len: int | None = None,
    kv_cache_bytes: int | None = None,
) -> TorchRunner:
    """Load `source` and allocate its KV pool.

    `dtype` is "auto" (bfloat16 where the processor multiplies it natively, else float32),
    "float32" or "bfloat16". The pool has `num_kv_blocks` blocks, or what fits in `kv_cache_bytes`,
    by default the lesser of 2 GiB and a quarter of the available memory. `max_model_len` defaults
    to the model's context. Raises ModelLoadError before anything large is allocated.
    """
    weights = open_weights(source)
    config = weights.config
    longest = config.context_length(max_model_len)
    kind = resolve_dtype(dtype)
    if num_kv_blocks is None:
        budget = default_cache_bytes() if kv_cache_bytes is None else kv_cache_bytes
        per_block = block_bytes(config, block_size, kind)
        num_kv_blocks = budget // per_block
        if num_kv_blocks < 1:
            raise ModelLoadError(
                f"kv_cache_bytes {budget} is less than one block of {per_block} bytes"
            )
    model = Transformer(weights, kind)
    return TorchRunner(
        model, num_blocks=num_kv_blocks, block_size=block_size, max_model_len=longest
    )


def open_weights(source: ModelSource) -> WeightSource:
    """Open and check the files of `source`. Raises ModelLoadError; allocates nothing large."""
    if source.format is ModelFormat.GGUF:
        return GGUFWeights(source.path)
    return HFWeights(source.path)


def resolve_dtype(dtype: str) -> torch.dtype:
    """The dtype to compute in. Raises ModelLoadError for one that is not offered."""
    if dtype == "auto":
        return torch.bfloat16 if multiplies_bf16() else torch.float32
    if dtype not in DTYPES:
        raise ModelLoadError(f"dtype {dtype!r} is not supported, only auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers."""
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize
    return per_token * block_size


def default_cache_bytes() -> int:
    """Bytes for the KV pool when none were given."""
    available = available_bytes()
    if available is None:
        return DEFAULT_CACHE_BYTES
    return min(DEFAULT_CACHE_BYTES, int(available * DEFAULT_CACHE_SHARE))
