"""How are the weights of a GGUF file read?"""

from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, dequantize
from torch import Tensor

from headway.engine.gguf_header import GGUFHeader, GGUFTensor, read_header
from headway.engine.model_config import ModelConfig, config_from_gguf
from headway.engine.weights import EMBEDDING, FINAL_NORM, LM_HEAD, check_shapes
from headway.errors import ModelLoadError

TENSOR_TYPES = (
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
    GGMLQuantizationType.Q4_0,
    GGMLQuantizationType.Q4_1,
    GGMLQuantizationType.Q8_0,
)

_GLOBAL_NAMES = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": LM_HEAD,
}
_LAYER_NAMES = {
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
_ROPE_FACTORS = "rope_freqs.weight"


class GGUFWeights:
    """A checked GGUF file; a WeightSource. Tensors are mapped, and dequantised when loaded.

    Raises ModelLoadError for a file that is damaged or truncated, an unknown architecture, a
    tensor of an unsupported type, a tensor that is missing or of a wrong shape.
    """

    def __init__(self, path: Path) -> None:
        header = read_header(path)
        self.where = str(path)
        self._tensors = {_hf_name(name): tensor for name, tensor in header.tensors.items()}
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        self._mapped = np.memmap(path, mode="r", dtype=np.uint8)
        for tensor in header.tensors.values():
            if tensor.type not in TENSOR_TYPES:
                supported = ", ".join(kind.name for kind in TENSOR_TYPES)
                raise ModelLoadError(
                    f"{path}: tensor {tensor.name!r} has type {tensor.type.name}, "
                    f"supported are {supported}"
                )
        self.config = self._read_config(header)
        # Files of this architecture keep rotary pairs as neighbours, the others as Hugging Face.
        self.rotary_interleaved = header.metadata.get("general.architecture") == "llama"
        check_shapes(self)

    def load(self, name: str) -> Tensor:
        """Dequantise one tensor to float32."""
        return torch.from_numpy(self._values(self._tensors[name]))

    def _values(self, tensor: GGUFTensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        raw = self._mapped[tensor.offset : tensor.offset + tensor.num_bytes]
        rows = raw.reshape(*tensor.shape[:-1], -1)
        if tensor.type in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
            kind = np.float32 if tensor.type == GGMLQuantizationType.F32 else np.float16
            values = np.frombuffer(raw.tobytes(), dtype=kind).astype(np.float32)
        else:
            values = dequantize(rows, tensor.type)
        return np.ascontiguousarray(values, dtype=np.float32).reshape(tensor.shape)

    def _read_config(self, header: GGUFHeader) -> ModelConfig:
        embedding = self._tensors.get(EMBEDDING)
        if embedding is None:
            raise ModelLoadError(f"{self.where}: tensor 'token_embd.weight' is missing")
        factors: tuple[float, ...] = ()
        if _ROPE_FACTORS in header.tensors:
            factors = tuple(self._values(header.tensors[_ROPE_FACTORS]).flatten().tolist())
        return config_from_gguf(
            self.where,
            header.metadata,
            vocab_size=embedding.shape[0],
            tied=LM_HEAD not in self._tensors,
            qkv_bias="model.layers.0.self_attn.q_proj.bias" in self._tensors,
            stored_rope_factors=factors,
        )


def _hf_name(name: str) -> str:
    if name in _GLOBAL_NAMES:
        return _GLOBAL_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"
    return name
