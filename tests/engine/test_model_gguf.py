"""Is a GGUF file read as it was written, and refused by name when it is damaged?"""

import random
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from headway.engine.gguf_file import GGUFWeights
from headway.engine.gguf_header import read_header
from headway.engine.model_source import ModelSource, resolve_model
from headway.engine.torch_runner import load_runner
from headway.errors import ModelLoadError
from tests.engine.gguf_files import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    VOCAB,
    as_hugging_face,
    random_tensors,
    write_gguf,
)
from tests.engine.sequences import run, sequences_for

QUANTIZED = {
    "blk.0.attn_q.weight": gguf.GGMLQuantizationType.Q4_1,
    "blk.0.ffn_up.weight": gguf.GGMLQuantizationType.Q4_0,
    "blk.1.ffn_down.weight": gguf.GGMLQuantizationType.Q8_0,
    "blk.1.attn_v.weight": gguf.GGMLQuantizationType.F16,
    "blk.1.attn_output.weight": gguf.GGMLQuantizationType.BF16,
}
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}


def _reference(arch: str, **options: Any) -> PreTrainedModel:
    if arch == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZES, **options))
    if arch == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SIZES, **options))
    return Qwen3ForCausalLM(Qwen3Config(**SIZES, **options))


def _source(path: Path) -> ModelSource:
    return resolve_model(str(path))


def _greedy(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(num_tokens):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def _compare(path: Path, model: Any) -> None:
    torch.set_num_threads(1)
    runner = load_runner(_source(path), dtype="float32", num_kv_blocks=40, block_size=8)
    rng = random.Random(1)
    prompts = [[rng.randrange(VOCAB) for _ in range(length)] for length in (3, 20, 70)]
    expected = [_greedy(model.eval(), prompt, 8) for prompt in prompts]
    assert run(runner, sequences_for(prompts, 8, 8, scramble=2), 8, chunk=9) == expected


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_each_architecture_and_type(tmp_path: Path, arch: str) -> None:
    tensors = random_tensors(arch)
    path = tmp_path / "model.gguf"
    write_gguf(path, arch, tensors, QUANTIZED)
    stored = dict(tensors)
    for name, kind in QUANTIZED.items():
        exact = gguf.dequantize(gguf.quantize(tensors[name], kind), kind)
        stored[name] = np.array(exact, dtype=np.float32).reshape(tensors[name].shape)
    model = _reference(arch)
    model.load_state_dict(as_hugging_face(stored, arch))
    _compare(path, model)


def test_stored_rope_factors(tmp_path: Path) -> None:
    """llama.cpp stores Llama 3's scaling as a tensor that divides the frequencies."""
    tensors = random_tensors("llama")
    factors = np.linspace(1.0, 6.0, HEAD_DIM // 2, dtype=np.float32)
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", {**tensors, "rope_freqs.weight": factors})
    model = _reference("llama")
    model.load_state_dict(as_hugging_face(tensors, "llama"))
    model.model.rotary_emb.inv_freq /= torch.from_numpy(factors)
    _compare(path, model)


def test_linear_scaling(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", tensors, rope__scaling__type="linear", rope__scaling__factor=4.0)
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    model = _reference("llama", rope_parameters=rope)
    model.load_state_dict(as_hugging_face(tensors, "llama"))
    _compare(path, model)


def test_separate_output_matrix(tmp_path: Path) -> None:
    tensors = random_tensors("llama")
    head = random_tensors("llama", seed=5)["token_embd.weight"]
    path = tmp_path / "model.gguf"
    write_gguf(path, "llama", {**tensors, "output.weight": head})
    model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "tie_word_embeddings": False}))
    state = as_hugging_face(tensors, "llama") | {"lm_head.weight": torch.from_numpy(head)}
    model.load_state_dict(state)
    _compare(path, model)


def test_header_equals_the_librarys_reading(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, "qwen2", random_tensors("qwen2"), QUANTIZED)
    header, reader = read_header(path), gguf.GGUFReader(path)
    wanted = {
        key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")
    }
    assert header.metadata == wanted
    assert set(header.tensors) == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        mine = header.tensors[tensor.name]
        assert (mine.offset, mine.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small sound file."""
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    write_gguf(path, "llama", random_tensors("llama"), QUANTIZED)
    GGUFWeights(path)
    return path.read_bytes()


def test_cut_anywhere(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    ends = {*range(64), *range(64, len(whole), 211), len(whole) - 1, len(whole) - 40}
    for end in sorted(ends):
        path.write_bytes(whole[:end])
        with pytest.raises(ModelLoadError) as raised:
            GGUFWeights(path)
        assert str(path) in str(raised.value)


def test_a_large_file_is_refused_before_anything_large_is_allocated(tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    with resolve_model("smollm2-135m").path.open("rb") as whole_file:
        path.write_bytes(whole_file.read(60_000_000))
    tracemalloc.start()
    with pytest.raises(ModelLoadError, match=r"truncated or damaged: tensor 'blk\.\d+\."):
        load_runner(_source(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000_000


def test_any_byte_of_the_header_changed(whole: bytes, tmp_path: Path) -> None:
    """Whatever one byte becomes, the file is read or refused by our error, at once."""
    path = tmp_path / "changed.gguf"
    rng = random.Random(3)
    header_end = min(tensor.offset for tensor in _tensors_of(whole, path))
    refused = 0
    for _ in range(600):
        at = rng.randrange(header_end)
        changed = bytearray(whole)
        changed[at] = rng.choice((0, 0xFF, changed[at] ^ (1 << rng.randrange(8))))
        path.write_bytes(changed)
        try:
            GGUFWeights(path)
        except ModelLoadError as error:
            assert str(path) in str(error)  # noqa: PT017 - both outcomes are right
            refused += 1
    assert refused > 100


def _tensors_of(whole: bytes, path: Path) -> list[Any]:
    path.write_bytes(whole)
    return list(read_header(path).tensors.values())


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"GGML", "magic"),
        (4, b"\x01\0\0\0", "version 1"),
        (4, b"\0\0\0\x03", "version"),
        (8, b"\xff" * 8, "tensor count"),
        (16, b"\xff" * 8, "metadata count"),
        (24, b"\xff" * 8, "metadata key"),
    ],
)
def test_wrong_start(whole: bytes, tmp_path: Path, at: int, value: bytes, message: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(whole[:at] + value + whole[at + len(value) :])
    with pytest.raises(ModelLoadError, match=message):
        GGUFWeights(path)


def test_unsupported_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = random_tensors("llama")
    write_gguf(path, "llama", tensors, {"blk.1.ffn_up.weight": gguf.GGMLQuantizationType.Q5_0})
    with pytest.raises(ModelLoadError, match=r"'blk\.1\.ffn_up\.weight' has type Q5_0"):
        GGUFWeights(path)


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    tensors = random_tensors("llama")
    write_gguf(path, "llama", {k: v for k, v in tensors.items() if k != "blk.1.ffn_up.weight"})
    with pytest.raises(ModelLoadError, match=r"model\.layers\.1\.mlp\.up_proj\.weight .*missing"):
        GGUFWeights(path)
    wrong = np.zeros((INTERMEDIATE, HIDDEN + 32), dtype=np.float32)
    write_gguf(path, "llama", {**tensors, "blk.1.ffn_up.weight": wrong})
    with pytest.raises(ModelLoadError, match=r"mlp\.up_proj\.weight has shape \[96, 96\]"):
        GGUFWeights(path)


@pytest.mark.parametrize(
    ("arch", "metadata", "message"),
    [
        ("gemma", {}, "general.architecture 'gemma' is not supported"),
        ("llama", {"expert_count": 8}, "expert_count"),
        ("llama", {"rope__scaling__type": "yarn"}, "rope_type 'yarn'"),
        ("llama", {"rope__dimension_count": 8}, "rope.dimension_count 8"),
        ("llama", {"attention__head_count_kv": 3}, "cannot share"),
        ("llama", {"context_length": "long"}, "context_length must be a positive integer"),
        ("llama", {"block_count": 3}, "model.layers.2.* is missing"),
    ],
)
def test_unsupported_models_are_refused_by_name(
    tmp_path: Path, arch: str, metadata: dict[str, Any], message: str
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, arch, random_tensors("llama"), **metadata)
    with pytest.raises(ModelLoadError, match=message):
        GGUFWeights(path)
