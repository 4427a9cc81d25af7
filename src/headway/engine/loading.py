"""What does an engine need of a model's files?"""

from dataclasses import dataclass

from headway.engine.model_source import resolve_model
from headway.engine.options import EngineOptions
from headway.engine.runner import ModelRunner
from headway.engine.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What an engine runs."""

    runner: ModelRunner
    tokenizer: Tokenizer


def load_model(model: str, options: EngineOptions) -> LoadedModel:
    """Load a model by name, folder or GGUF file. Raises ModelLoadError."""
    # torch is large; an engine of other parts, as in tests, does without it.
    from headway.engine.torch_runner import load_runner

    source = resolve_model(model)
    tokenizer = load_tokenizer(source)
    runner = load_runner(
        source,
        dtype=options.dtype,
        num_kv_blocks=options.num_kv_blocks,
        block_size=options.block_size,
        max_model_len=options.max_model_len,
        kv_cache_bytes=options.kv_cache_bytes,
    )
    return LoadedModel(runner, tokenizer)
