"""Is a model found by name, file or folder, and a damaged folder refused by name?"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from headway.engine.hf_folder import HFWeights
from headway.engine.machine import available_bytes, multiplies_bf16
from headway.engine.model_source import ModelFormat, resolve_model
from headway.engine.torch_runner import block_bytes, load_runner, resolve_dtype
from headway.errors import ModelLoadError

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A sound folder with one weight file."""
    folder = tmp_path / "single"
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder)
    return folder


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A sound folder with several."""
    folder = tmp_path / "sharded"
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def test_names_files_and_folders(single: Path, tmp_path: Path) -> None:
    packaged = resolve_model("smollm2-135m")
    assert packaged.format is ModelFormat.GGUF
    assert packaged.name == "smollm2-135m"
    assert resolve_model(str(packaged.path)).path == packaged.path
    assert resolve_model(str(packaged.path.parent)).path == packaged.path
    assert resolve_model(str(single)).format is ModelFormat.HF
    assert resolve_model(str(single)).name == "single"
    (tmp_path / "weights.bin").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for model, message in (
        ("no-such-model", "no model at 'no-such-model'.*smollm2-135m"),
        (str(tmp_path / "weights.bin"), "not a .gguf file"),
        (str(tmp_path / "empty"), "neither config.json nor a .gguf file"),
    ):
        with pytest.raises(ModelLoadError, match=message):
            resolve_model(model)


def test_several_gguf_files_in_a_folder_are_not_guessed_among(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match=r"several GGUF files \(a\.gguf, b\.gguf\)"):
        resolve_model(str(tmp_path))


def test_cut_weight_file(single: Path) -> None:
    path = single / "model.safetensors"
    whole = path.read_bytes()
    for end in [0, 1, 7, 8, 9, 100, *range(200, len(whole), len(whole) // 40), len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(ModelLoadError, match=r"model\.safetensors: damaged or truncated"):
            HFWeights(single)


def test_missing_shard_and_damaged_index(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    sound = index.read_text()
    shard = sorted(sharded.glob("*.safetensors"))[1]
    content = shard.read_bytes()
    shard.unlink()
    with pytest.raises(ModelLoadError, match=f"{shard.name}: the weight file is missing"):
        HFWeights(sharded)
    shard.write_bytes(content[:-5])
    with pytest.raises(ModelLoadError, match=f"{shard.name}: damaged or truncated"):
        HFWeights(sharded)
    shard.write_bytes(content)
    listed = json.loads(sound)
    name = "model.layers.0.mlp.up_proj.weight"
    others = set(listed["weight_map"].values()) - {listed["weight_map"][name]}
    for change, message in (
        ({name: others.pop()}, f"tensor {name} is missing"),
        ({name: "../elsewhere.safetensors"}, "is not the name of a file"),
        ({name: 3}, "is not the name of a file"),
    ):
        weight_map = {**listed["weight_map"], **change}
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ModelLoadError, match=message):
            HFWeights(sharded)
    for text, message in (
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "weight_map is missing"),
        ('{"weight_map": {}}', "weight_map is missing or empty"),
    ):
        index.write_text(text)
        with pytest.raises(ModelLoadError, match=message):
            HFWeights(sharded)
    index.unlink()
    with pytest.raises(ModelLoadError, match=r"neither model\.safetensors nor"):
        HFWeights(sharded)
    index.write_text(sound)
    HFWeights(sharded)


def test_missing_misshapen_and_unsupported_tensors(single: Path) -> None:
    path = single / "model.safetensors"
    sound = load_file(path)
    name = "model.layers.1.self_attn.k_proj.weight"
    for change, message in (
        ({name: None}, f"tensor {name} .* is missing"),
        ({name: torch.zeros(8, 32)}, rf"tensor {name} has shape \[8, 32\]"),
        ({name: torch.zeros(16, 32, dtype=torch.int8)}, f"tensor {name} has type I8"),
    ):
        tensors = {**sound, **change}
        kept = {key: value for key, value in tensors.items() if value is not None}
        save_file(kept, path)
        with pytest.raises(ModelLoadError, match=message):
            HFWeights(single)


def test_config_that_is_no_json(single: Path) -> None:
    (single / "config.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ModelLoadError, match=r"config\.json: not valid JSON"):
        HFWeights(single)


def test_pool_size_and_dtype(single: Path) -> None:
    source = resolve_model(str(single))
    config = HFWeights(single).config
    one = block_bytes(config, 16, torch.bfloat16)
    # 2 (key, value) x 2 layers x 2 heads x 8 values x 2 bytes x 16 tokens
    assert one == 2 * 2 * 2 * 8 * 2 * 16
    runner = load_runner(source, dtype="bfloat16", kv_cache_bytes=one * 7 + 1, max_model_len=64)
    assert (runner.num_blocks, runner.block_size, runner.max_model_len) == (7, 16, 64)
    assert runner.vocab_size == 64
    assert load_runner(source, dtype="float32", kv_cache_bytes=one * 7).num_blocks == 3
    with pytest.raises(ModelLoadError, match="less than one block"):
        load_runner(source, dtype="bfloat16", kv_cache_bytes=one - 1)
    with pytest.raises(ModelLoadError, match="dtype 'int3' is not supported"):
        load_runner(source, dtype="int3")
    assert resolve_dtype("auto") is (torch.bfloat16 if multiplies_bf16() else torch.float32)


def test_what_the_machine_can_do_is_read_from_its_files(tmp_path: Path) -> None:
    cpuinfo, meminfo = tmp_path / "cpuinfo", tmp_path / "meminfo"
    for text, expected in (
        ("flags\t\t: fpu avx512f avx512_bf16 sse", True),
        ("Features\t: fp asimd bf16", True),
        ("flags\t\t: fpu avx512f", False),
        ("model name\t: with bf16 in its name", False),
        ("", False),
    ):
        cpuinfo.write_text(text)
        assert multiplies_bf16(cpuinfo) is expected
    assert not multiplies_bf16(tmp_path / "none")
    meminfo.write_text("MemTotal: 99 kB\nMemAvailable:   50 kB\n")
    assert available_bytes(meminfo, tmp_path) == 50 * 1024
    (tmp_path / "memory.max").write_text("30000\n")
    (tmp_path / "memory.current").write_text("10000\n")
    assert available_bytes(meminfo, tmp_path) == 20000
    assert available_bytes(tmp_path / "none", tmp_path) is None
