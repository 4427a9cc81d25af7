"""Which decoder is this: its family, sizes and variations?"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from headway.engine.rope_scaling import rope_factors
from headway.errors import ModelLoadError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
GGUF_FAMILIES = ("llama", "qwen2", "qwen3")
"""Mistral models are stored in GGUF under the architecture `llama`."""

# What transformers assumes for a key that config.json leaves out.
_DEFAULT_ROPE_THETA = 10_000.0
_QWEN3_HEAD_DIM = 128
_MISTRAL_WINDOW = 4096

_LARGEST_HEAD = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and variations of one decoder; names are those of Hugging Face's config.json."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_factors: tuple[float, ...] = ()
    """What each of the head_dim / 2 rotary frequencies is divided by; empty: nothing."""
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    """Tokens that attention looks back, where the model limits that."""

    def context_length(self, max_model_len: int | None) -> int:
        """The context to serve: what was asked, or the most that this model can do.

        Raises ModelLoadError when more is asked than the model can do. Attention here is always
        full, which is the same as a sliding window while the context fits into it.
        """
        window = self.sliding_window
        longest = self.max_position_embeddings
        if max_model_len is None:
            return longest if window is None else min(longest, window)
        if max_model_len > longest:
            raise ModelLoadError(
                f"max_model_len {max_model_len} is over the model's max_position_embeddings "
                f"{longest}"
            )
        if window is not None and max_model_len > window:
            raise ModelLoadError(
                f"sliding_window attention is not supported beyond its window: "
                f"set max_model_len to {window} or less, got {max_model_len}"
            )
        return max_model_len


@dataclass(slots=True)
class _Fields:
    """Typed reading of a mapping; errors name the file and the key."""

    where: str
    values: Mapping[str, object]
    prefix: str = ""

    def error(self, key: str, message: str) -> ModelLoadError:
        return ModelLoadError(f"{self.where}: {self.prefix}{key} {message}")

    def get(self, key: str) -> object:
        return self.values.get(self.prefix + key)

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.error(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.error(key, f"must be a positive integer, got {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.error(key, "is missing")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"must be a number, got {value!r}")
        if not isfinite(value) or value <= 0:
            raise self.error(key, f"must be a positive number, got {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, got {value!r}")
        return value

    def mapping(self, key: str) -> Mapping[str, object]:
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.error(key, f"must be an object, got {value!r}")
        return value


def config_from_hf(where: str, values: Mapping[str, object]) -> ModelConfig:
    """Read the object in config.json. Raises ModelLoadError, naming `where` and the key."""
    fields = _Fields(where, values)
    family = values.get("model_type")
    if family not in FAMILIES or not isinstance(family, str):
        raise fields.error("model_type", f"{family!r} is not supported, only {_list(FAMILIES)}")
    _refuse_unsupported(fields)
    rope = _Fields(where, {**fields.mapping("rope_scaling"), **fields.mapping("rope_parameters")})
    hidden_size, num_heads = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    default_head_dim = _QWEN3_HEAD_DIM if family == "qwen3" else hidden_size // num_heads
    head_dim = _head_dim(fields, "head_dim", default_head_dim)
    theta = rope.number("rope_theta", fields.number("rope_theta", _DEFAULT_ROPE_THETA))
    longest = fields.integer("max_position_embeddings")
    biased = fields.flag("attention_bias", False)
    return _checked(
        where,
        ModelConfig(
            family=family,
            vocab_size=fields.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=fields.integer("intermediate_size"),
            num_layers=fields.integer("num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=fields.integer("num_key_value_heads", num_heads),
            head_dim=head_dim,
            max_position_embeddings=longest,
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope_theta=theta,
            rope_factors=rope_factors(where, rope.values, theta, head_dim, longest),
            tie_word_embeddings=fields.flag("tie_word_embeddings", False),
            qkv_bias=family == "qwen2" or (biased and family != "mistral"),
            output_bias=biased and family in ("llama", "qwen3"),
            qk_norm=family == "qwen3",
            sliding_window=_hf_window(fields, family),
        ),
    )


def config_from_gguf(
    where: str,
    values: Mapping[str, object],
    *,
    vocab_size: int,
    tied: bool,
    qkv_bias: bool,
    stored_rope_factors: tuple[float, ...] = (),
) -> ModelConfig:
    """Read GGUF metadata; what only the tensors tell is passed in.

    Raises ModelLoadError, naming `where` and the key.
    """
    family = values.get("general.architecture")
    if family not in GGUF_FAMILIES or not isinstance(family, str):
        raise ModelLoadError(
            f"{where}: general.architecture {family!r} is not supported, "
            f"only {_list(GGUF_FAMILIES)}"
        )
    fields = _Fields(where, values, f"{family}.")
    if fields.get("expert_count") not in (None, 0):
        raise fields.error("expert_count", "is not 0: mixtures of experts are not supported")
    hidden_size, num_heads = (
        fields.integer("embedding_length"),
        fields.integer("attention.head_count"),
    )
    head_dim = _head_dim(fields, "attention.key_length", hidden_size // num_heads)
    theta = fields.number("rope.freq_base", _DEFAULT_ROPE_THETA)
    for key in ("attention.value_length", "rope.dimension_count"):
        if fields.integer(key, head_dim) != head_dim:
            raise fields.error(key, f"{fields.get(key)} differs from the head size {head_dim}")
    longest = fields.integer("context_length")
    kind = fields.get("rope.scaling.type")
    scaling = {"rope_type": "default" if kind in (None, "none") else kind}
    if scaling["rope_type"] != "default":
        scaling["factor"] = fields.get("rope.scaling.factor")
    return _checked(
        where,
        ModelConfig(
            family=family,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            intermediate_size=fields.integer("feed_forward_length"),
            num_layers=fields.integer("block_count"),
            num_heads=num_heads,
            num_kv_heads=fields.integer("attention.head_count_kv", num_heads),
            head_dim=head_dim,
            max_position_embeddings=longest,
            rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
            rope_theta=theta,
            rope_factors=stored_rope_factors
            or rope_factors(where, scaling, theta, head_dim, longest),
            tie_word_embeddings=tied,
            qkv_bias=qkv_bias,
            qk_norm=family == "qwen3",
            sliding_window=_gguf_window(fields),
        ),
    )


def _refuse_unsupported(fields: _Fields) -> None:
    activation = fields.values.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise fields.error("hidden_act", f"{activation!r} is not supported, only 'silu'")
    if fields.flag("mlp_bias", False):
        raise fields.error("mlp_bias", "true is not supported")
    if fields.values.get("quantization_config") is not None:
        raise fields.error("quantization_config", "is set: quantized folders are not supported")
    partial = fields.number("partial_rotary_factor", 1.0)
    if partial != 1.0:
        raise fields.error("partial_rotary_factor", f"{partial} is not supported, only 1")


def _head_dim(fields: _Fields, key: str, default: int) -> int:
    size = fields.integer(key, default)
    if size % 2 or not 0 < size <= _LARGEST_HEAD:
        raise fields.error(key, f"{size} is not an even number up to {_LARGEST_HEAD}")
    return size


def _hf_window(fields: _Fields, family: str) -> int | None:
    if family == "mistral" and "sliding_window" not in fields.values:
        return _MISTRAL_WINDOW
    if fields.get("sliding_window") is None or family == "llama":
        return None
    layer_types = fields.get("layer_types")
    if isinstance(layer_types, list) and layer_types:
        used = "sliding_attention" in layer_types
    else:
        used = family == "mistral" or fields.flag("use_sliding_window", False)
    return fields.integer("sliding_window") if used else None


def _gguf_window(fields: _Fields) -> int | None:
    key = "attention.sliding_window"
    return None if fields.get(key) in (None, 0) else fields.integer(key)


def _checked(where: str, config: ModelConfig) -> ModelConfig:
    if config.num_heads % config.num_kv_heads:
        raise ModelLoadError(
            f"{where}: {config.num_heads} attention heads cannot share "
            f"{config.num_kv_heads} key-value heads evenly"
        )
    if config.rope_factors and len(config.rope_factors) != config.head_dim // 2:
        raise ModelLoadError(f"{where}: {len(config.rope_factors)} rotary factors, not head size/2")
    return config


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)
