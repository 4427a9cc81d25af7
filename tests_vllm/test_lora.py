"""Does `vllm serve` with the plugin serve more LoRA adapters than it has places for?"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests_vllm.servers import PLUGIN, eventually, serve_vllm

RANK = 4


def make_adapter(model: str, folder: Path, seed: int) -> Path:
    """Write an adapter of random weights for the model's attention."""
    config = json.loads(Path(model, "config.json").read_text(encoding="utf-8"))
    hidden = config["hidden_size"]
    of_kv = config["num_key_value_heads"] * hidden // config["num_attention_heads"]
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, size in (("q_proj", hidden), ("v_proj", of_kv)):
            path = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{path}.lora_A.weight"] = torch.randn(RANK, hidden, generator=random) / 20
            weights[f"{path}.lora_B.weight"] = torch.randn(size, RANK, generator=random) / 20
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    described = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "m",
        "target_modules": ["q_proj", "v_proj"],
        "r": RANK,
        "lora_alpha": RANK,
    }
    (folder / "adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
    return folder


def test_adapters_take_turns_in_one_place(model: str, tmp_path: Path) -> None:
    """Bulk of one adapter is parked for a long critical prompt while another adapter waits."""
    adapters = [
        f"{name}={make_adapter(model, tmp_path / name, seed)}" for seed, name in enumerate("ab")
    ]
    options = ("--enable-lora", "--max-loras", "1", "--max-lora-rank", "8", "--lora-modules")
    with serve_vllm(model, tmp_path / "log", *PLUGIN, *options, *adapters) as server:
        server.wait()

        def ask(name: str, priority: int, prompt: str, max_tokens: int) -> int:
            headers = {"x-vllm-priority": str(priority)}
            body = {"model": name, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True}
            tokens: int = server.ask(headers, **body)["usage"]["completion_tokens"]
            return tokens

        with ThreadPoolExecutor(16) as callers:
            bulk = [callers.submit(ask, "a", 1, "Once", 60 + 5 * n) for n in range(8)]
            assert eventually(lambda: server.total("vllm:num_requests_running") == 4)
            urgent = [callers.submit(ask, "m", -1, "word " * 400, 8) for _ in range(2)]
            urgent += [callers.submit(ask, "b", -1, "word " * 20, 8) for _ in range(2)]
            assert [each.result() for each in urgent] == [8] * 4
            assert [each.result() for each in bulk] == [60 + 5 * n for n in range(8)]
        assert server.is_well()
