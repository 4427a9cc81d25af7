"""How does a test make a small GGUF file?"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, VOCAB = 64, 96, 2, 4, 2, 96
HEAD_DIM = HIDDEN // HEADS

Tensors = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def random_tensors(arch: str, seed: int = 0) -> Tensors:
    """All tensors of a small model, under GGUF names and in float32."""
    rng = np.random.default_rng(seed)
    kv = KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, HIDDEN)}
    shapes["output_norm.weight"] = (HIDDEN,)
    for index in range(LAYERS):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (HIDDEN, HIDDEN),
            "attn_k.weight": (kv, HIDDEN),
            "attn_v.weight": (kv, HIDDEN),
            "attn_output.weight": (HIDDEN, HIDDEN),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (INTERMEDIATE, HIDDEN),
            "ffn_up.weight": (INTERMEDIATE, HIDDEN),
            "ffn_down.weight": (HIDDEN, INTERMEDIATE),
        }
        if arch == "qwen2":
            layer |= {"attn_q.bias": (HIDDEN,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if arch == "qwen3":
            layer |= {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
        shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    return {
        name: (rng.standard_normal(shape) * 0.3 + (len(shape) == 1) * 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_gguf(
    path: Path,
    arch: str,
    tensors: Tensors,
    types: dict[str, gguf.GGMLQuantizationType] | None = None,
    **metadata: object,
) -> None:
    """Write `tensors`, float32 but for those in `types`; `metadata` replaces or adds keys."""
    writer = gguf.GGUFWriter(path, arch)
    values: dict[str, object] = {
        "context_length": 256,
        "embedding_length": HIDDEN,
        "feed_forward_length": INTERMEDIATE,
        "block_count": LAYERS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        **{key.replace("__", "."): value for key, value in metadata.items()},
    }
    for key, value in values.items():
        if isinstance(value, float):
            writer.add_float32(f"{arch}.{key}", value)
        elif isinstance(value, str):
            writer.add_string(f"{arch}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_array("tokenizer.ggml.tokens", [f"t{index}" for index in range(VOCAB)])
    writer.add_array("tokenizer.ggml.token_type", [1] * VOCAB)
    for name, tensor in tensors.items():
        kind = (types or {}).get(name)
        if kind is None:
            writer.add_tensor(name, tensor)
        else:
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_HF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def as_hugging_face(tensors: Tensors, arch: str) -> dict[str, torch.Tensor]:
    """The same tensors as transformers names and orders them, with tied embeddings."""
    embedding = torch.from_numpy(tensors["token_embd.weight"])
    state = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": embedding,
        "model.norm.weight": torch.from_numpy(tensors["output_norm.weight"]),
    }
    for name, tensor in tensors.items():
        if not name.startswith("blk."):
            continue
        _, index, part, kind = name.split(".")
        value = torch.from_numpy(tensor)
        if arch == "llama" and part in ("attn_q", "attn_k"):
            # llama.cpp keeps rotary pairs as neighbours: undo that, head by head.
            heads = value.view(-1, HEAD_DIM // 2, 2, HIDDEN)
            value = heads.transpose(1, 2).reshape(value.shape)
        state[f"model.layers.{index}.{_HF_NAMES[part]}.{kind}"] = value
    return state
