"""Does a folder of each family compute what Hugging Face transformers computes from it?"""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from headway.engine.model_source import resolve_model
from headway.engine.runner import SequenceSlice
from headway.engine.sampling_params import SamplingParams
from headway.engine.torch_runner import TorchRunner, load_runner
from headway.errors import ModelLoadError
from tests.engine.sequences import run, sequences_for

VOCAB = 211
NUM_TOKENS = 8
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR: dict[str, Any] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}


def _configs() -> dict[str, tuple[type[PreTrainedModel], PretrainedConfig]]:
    return {
        "llama": (LlamaForCausalLM, LlamaConfig(**SIZES)),
        "llama-llama3-tied": (
            LlamaForCausalLM,
            LlamaConfig(**SIZES, rope_parameters=LLAMA3, tie_word_embeddings=True),
        ),
        "llama-linear-biased": (
            LlamaForCausalLM,
            LlamaConfig(**SIZES, rope_parameters=LINEAR, attention_bias=True),
        ),
        "llama-one-kv-head": (
            LlamaForCausalLM,
            LlamaConfig(**{**SIZES, "num_key_value_heads": 1}, head_dim=16),
        ),
        "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SIZES, tie_word_embeddings=True)),
        "qwen3": (Qwen3ForCausalLM, Qwen3Config(**SIZES, head_dim=16)),
        "qwen3-tied": (
            Qwen3ForCausalLM,
            Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True),
        ),
        "mistral": (MistralForCausalLM, MistralConfig(**SIZES, sliding_window=None)),
        "mistral-window": (MistralForCausalLM, MistralConfig(**SIZES, sliding_window=256)),
    }


@pytest.fixture(scope="module", params=sorted(_configs()))
def saved(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, PreTrainedModel]:
    """A random model of one family and its folder, sharded for every other one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kind, config = _configs()[request.param]
    model: Any = kind(config)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Gains and biases away from their initial 1 and 0, and logits that differ clearly.
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1) * 0.5)
    folder = tmp_path_factory.mktemp(request.param)
    sharded = sorted(_configs()).index(request.param) % 2 == 1
    model.save_pretrained(folder, max_shard_size="100KB" if sharded else "5GB")
    assert (folder / "model.safetensors.index.json").exists() == sharded
    return folder, model


def _runner(folder: Path, **options: Any) -> TorchRunner:
    return load_runner(
        resolve_model(str(folder)),
        **{"dtype": "float32", "num_kv_blocks": 200, "block_size": 4, **options},
    )


def _prompts(seed: int, lengths: tuple[int, ...] = (1, 2, 7, 8, 9, 40, 131)) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(VOCAB) for _ in range(length)] for length in lengths]


def _expected(model: PreTrainedModel, prompt: list[int]) -> list[int]:
    tokens = list(prompt)
    for _ in range(NUM_TOKENS):
        tokens.append(int(_logits(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]


def _logits(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def test_greedy_tokens(saved: tuple[Path, PreTrainedModel]) -> None:
    folder, model = saved
    runner = _runner(folder)
    prompts = _prompts(1)
    expected = [_expected(model, prompt) for prompt in prompts]
    for prompt, tokens in zip(prompts, expected, strict=True):
        assert run(runner, sequences_for([prompt], NUM_TOKENS, 4), NUM_TOKENS) == [tokens]
    for chunk in (512, 11, 3):
        together = sequences_for(prompts, NUM_TOKENS, 4, scramble=chunk)
        assert run(runner, together, NUM_TOKENS, chunk) == expected


def test_all_log_probabilities(saved: tuple[Path, PreTrainedModel]) -> None:
    """The 20 most probable tokens' log-probabilities, after a cached part, to 1e-4."""
    folder, model = saved
    runner = _runner(folder)
    params = SamplingParams(temperature=0.0, logprobs=20)
    for prompt in _prompts(2, (3, 30, 120)):
        sequences = sequences_for([prompt], 1, 4, scramble=5, params=params)
        run(runner, sequences, 1, chunk=7)
        exact = _logits(model, prompt)[-1].log_softmax(-1)
        top = sequences[0].drawn[0].top_logprobs
        assert len(top) == 20
        assert [token for token, _ in top] == exact.topk(20).indices.tolist()
        for token, logprob in top:
            assert logprob == pytest.approx(float(exact[token]), abs=1e-4)


def test_older_config_spelling(saved: tuple[Path, PreTrainedModel], tmp_path: Path) -> None:
    """`rope_theta` and `rope_scaling`, as transformers 4 wrote them, mean the same."""
    folder, model = saved
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["torch_dtype"] = config.pop("dtype", "float32")
    config["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
    (tmp_path / "config.json").write_text(json.dumps(config))
    prompt = _prompts(3, (90,))[0]
    drawn = run(_runner(tmp_path), sequences_for([prompt], NUM_TOKENS, 4), NUM_TOKENS)
    assert drawn == [_expected(model, prompt)]


def test_sliding_window_is_refused_only_where_it_matters(tmp_path: Path) -> None:
    model = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=256))
    model.save_pretrained(tmp_path)
    assert _runner(tmp_path).max_model_len == 256
    assert _runner(tmp_path, max_model_len=128).max_model_len == 128
    with pytest.raises(ModelLoadError, match=r"sliding_window.*set max_model_len to 256 or less"):
        _runner(tmp_path, max_model_len=257)
    with pytest.raises(ModelLoadError, match=r"max_model_len 513 is over.*512"):
        _runner(tmp_path, max_model_len=513)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not supported"),
        ({"model_type": None}, "model_type None is not supported"),
        ({"model_type": ["llama"]}, r"model_type \['llama'\] is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_type 'yarn'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "needs the number factor"),
        ({"rope_parameters": {**LLAMA3, "low_freq_factor": 4.0}}, "low_freq_factor"),
        ({"rope_parameters": 7}, "rope_parameters must be an object"),
        ({"hidden_size": "48"}, "hidden_size must be a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer"),
        ({"num_key_value_heads": 4}, "cannot share"),
        ({"head_dim": 7}, "head_dim 7 is not an even number"),
        ({"head_dim": 2**30}, "head_dim 1073741824 is not an even number up to 1024"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps must be a number"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false"),
        ({"max_position_embeddings": None}, "max_position_embeddings is missing"),
        ({"num_hidden_layers": 4}, "tensor model.layers.3.* is missing"),
        ({"hidden_size": 54, "head_dim": 8}, "embed_tokens.weight has shape"),
        ({"vocab_size": 212}, r"has shape \[211, 48\], the configuration needs \[212, 48\]"),
    ],
)
def test_impossible_configurations_are_refused_by_name(
    tmp_path: Path, change: Mapping[str, object], message: str
) -> None:
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ModelLoadError, match=message):
        _runner(tmp_path)


def test_prompt_logits_do_not_depend_on_others(saved: tuple[Path, PreTrainedModel]) -> None:
    """One step that holds decodes of very different lengths and chunks with and without cache."""
    folder, model = saved
    runner = _runner(folder)
    prompts = _prompts(4, (2, 100, 50, 33, 20, 19, 18, 17))
    sequences = sequences_for(prompts, 2, 4, scramble=9)
    expected = [_expected(model, prompt)[0] for prompt in prompts]
    for index, item in enumerate(sequences):
        # Everything but the last token, except for two that start or continue with a chunk.
        before = {2: 0, 3: 8}.get(index, len(item.tokens) - 1)
        if before:
            part = item.slice(before)
            runner.execute([_unsampled(part)], [])
            item.computed = before
    result = runner.execute([item.slice(512) for item in sequences], [])
    assert [result.sampled[item.name].token_id for item in sequences] == expected


def _unsampled(part: SequenceSlice) -> SequenceSlice:
    return SequenceSlice(
        part.sequence_id,
        part.token_ids,
        part.num_prompt_tokens,
        part.start,
        part.end,
        part.block_table,
        False,
        part.params,
        part.seed,
    )
