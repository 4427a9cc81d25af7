"""Which tensors does a decoder need, and how do they become the matrices it multiplies by?

Tensor names are Hugging Face's. On the way in, four things are folded into the matrices, so that
a step does not spend time on them:

- q, k and v are one matrix;
- the gain of each RMSNorm is folded into the columns of the matrix that follows it;
- the scale of attention, `head_dim ** -0.5`, is folded into q;
- the two halves of each rotary pair become neighbours, so that rotating is a complex product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headway.engine.model_config import ModelConfig
from headway.errors import ModelLoadError

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"


class WeightSource(Protocol):
    """A model's files, opened. Two exist: GGUF and safetensors."""

    config: ModelConfig
    shapes: dict[str, tuple[int, ...]]
    """Every tensor that is there, under its Hugging Face name."""
    rotary_interleaved: bool
    """Whether rotary pairs are neighbours in q and k already, not half a head apart."""
    where: str
    """The path, for messages."""

    def load(self, name: str) -> Tensor:
        """Read one tensor, as float32, in the shape that `shapes` says."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's matrices, `[outputs, inputs]`, float32, gains folded in."""

    qkv: Tensor
    qkv_bias: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    gate: Tensor
    up: Tensor
    down: Tensor
    qk_gain: Tensor | None
    """`[num_heads + num_kv_heads, head_dim]`, the gains of q/k norm."""


def expected_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that a model of this configuration must have.

    Lazily, so that a damaged number of layers is found at the first layer that is not there.
    """
    hidden, head_dim = config.hidden_size, config.head_dim
    q, kv = config.num_heads * head_dim, config.num_kv_heads * head_dim
    yield EMBEDDING, (config.vocab_size, hidden)
    yield FINAL_NORM, (hidden,)
    if not config.tie_word_embeddings:
        yield LM_HEAD, (config.vocab_size, hidden)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (config.intermediate_size, hidden),
        "mlp.up_proj.weight": (config.intermediate_size, hidden),
        "mlp.down_proj.weight": (hidden, config.intermediate_size),
    }
    if config.qkv_bias:
        layer["self_attn.q_proj.bias"] = (q,)
        layer["self_attn.k_proj.bias"] = layer["self_attn.v_proj.bias"] = (kv,)
    if config.output_bias:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config.qk_norm:
        layer["self_attn.q_norm.weight"] = layer["self_attn.k_norm.weight"] = (head_dim,)
    for index in range(config.num_layers):
        for name, shape in layer.items():
            yield f"model.layers.{index}.{name}", shape


def check_shapes(source: WeightSource) -> None:
    """Raises ModelLoadError, naming the first tensor that is missing or has a wrong shape."""
    for name, wanted in expected_shapes(source.config):
        found = source.shapes.get(name)
        if found is None:
            raise ModelLoadError(f"{source.where}: tensor {name} {list(wanted)} is missing")
        if tuple(found) != wanted:
            raise ModelLoadError(
                f"{source.where}: tensor {name} has shape {list(found)}, "
                f"the configuration needs {list(wanted)}"
            )


def load_layer(source: WeightSource, index: int) -> LayerWeights:
    """Read and fold the matrices of layer `index`."""
    config = source.config

    def load(name: str) -> Tensor:
        return source.load(f"model.layers.{index}.{name}")

    def pair(tensor: Tensor) -> Tensor:
        return tensor if source.rotary_interleaved else _interleave(tensor, config.head_dim)

    # Where q is normalised, the scale has to come after that.
    scale: float = config.head_dim**-0.5
    early, late = (1.0, scale) if config.qk_norm else (scale, 1.0)

    def joined(kind: str) -> Tensor:
        q, k, v = (load(f"self_attn.{part}_proj.{kind}") for part in "qkv")
        return torch.cat((pair(q) * early, pair(k), v))

    qk_gain = None
    if config.qk_norm:
        q_gain, k_gain = (
            pair(load("self_attn.q_norm.weight")),
            pair(load("self_attn.k_norm.weight")),
        )
        qk_gain = torch.cat(
            (q_gain.expand(config.num_heads, -1) * late, k_gain.expand(config.num_kv_heads, -1))
        )
    mlp_gain = load("post_attention_layernorm.weight")
    return LayerWeights(
        qkv=joined("weight") * load("input_layernorm.weight"),
        qkv_bias=joined("bias") if config.qkv_bias else None,
        output=load("self_attn.o_proj.weight"),
        output_bias=load("self_attn.o_proj.bias") if config.output_bias else None,
        gate=load("mlp.gate_proj.weight") * mlp_gain,
        up=load("mlp.up_proj.weight") * mlp_gain,
        down=load("mlp.down_proj.weight"),
        qk_gain=qk_gain,
    )


def load_head(source: WeightSource) -> tuple[Tensor, Tensor]:
    """The embedding and the output matrix, `[vocab, hidden]`, the final norm's gain folded in."""
    embedding = source.load(EMBEDDING)
    head = embedding if source.config.tie_word_embeddings else source.load(LM_HEAD)
    return embedding, head * source.load(FINAL_NORM)


def _interleave(tensor: Tensor, head_dim: int) -> Tensor:
    # Rows of each head: 0 1 2 ... | h h+1 h+2 ...  ->  0 h 1 h+1 2 h+2 ...
    rest = tensor.shape[1:]
    halves = tensor.view(-1, 2, head_dim // 2, *rest)
    return halves.transpose(1, 2).reshape(-1, *rest)
