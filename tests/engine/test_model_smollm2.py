"""Does the packaged SmolLM2 compute what Hugging Face transformers computes? (G8)"""

import random
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from headway.engine.engine import LLMEngine
from headway.engine.model_source import resolve_model
from headway.engine.options import EngineOptions
from headway.engine.sampling_params import SamplingParams
from headway.engine.tokenizer import load_tokenizer
from headway.engine.torch_runner import TorchRunner, load_runner
from tests.engine.sequences import TestSequence, run, sequences_for, step

NUM_TOKENS = 6
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "1 2 3 4 5 6 7",
    "The quick brown fox",
    "To be, or not to be:",
    "import numpy as np\n",
    "Dear Sir or Madam,",
    "Photosynthesis is the process by which",
    "SELECT name FROM users WHERE",
    "In 1969, humans first",
    "The three laws of thermodynamics are",
    "She opened the door and",
    "A prime number is",
    "Ingredients: two eggs, one cup of flour,",
    "The opposite of hot is",
    "Les enfants jouent dans",
    "My favourite colour is",
    "How many legs does a spider have?",
    "The stock market fell today because",
    "Roses are red,",
    "Machine learning models are trained",
    "Question: What is 2 + 2?\nAnswer:",
    "The Great Wall of China",
    "To install the package, run",
    "Newton's second law states that",
    "It was a dark and stormy night;",
    "Breaking news:",
    "x",
)


@pytest.fixture(scope="module")
def runner() -> TorchRunner:
    """The packaged model in float32."""
    torch.set_num_threads(1)
    return load_runner(
        resolve_model("smollm2-135m"), dtype="float32", num_kv_blocks=400, block_size=16
    )


@pytest.fixture(scope="module")
def reference() -> Any:
    """The same file as Hugging Face transformers reads it, in float32."""
    torch.set_num_threads(1)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=8192,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
            tie_word_embeddings=True,
        )
    )
    path = resolve_model("smollm2-135m").path
    load: Any = load_gguf_checkpoint
    read = load(str(path), return_tensors=True, model_to_load=model)
    missing, unknown = model.load_state_dict(read["tensors"], strict=False)
    assert not unknown
    assert missing == ["lm_head.weight"]
    model.tie_weights()
    return model.eval()


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Texts, and random tokens around the size of a block."""
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    rng = random.Random(0)
    made = [tokenizer.encode(text) for text in TEXTS]
    return made + [
        [rng.randrange(tokenizer.vocab_size) for _ in range(length)]
        for length in (31, 32, 33, 100, 190)
    ]


@pytest.fixture(scope="module")
def alone(runner: TorchRunner, prompts: list[list[int]]) -> list[list[int]]:
    """What each prompt draws greedily when nothing else runs."""
    return [run(runner, sequences_for([each], NUM_TOKENS, 16), NUM_TOKENS)[0] for each in prompts]


def test_greedy_tokens_are_those_of_transformers(
    reference: Any, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    """Each drawn token is the most probable one after all those before it."""
    assert len(prompts) >= 30
    for prompt, drawn in zip(prompts, alone, strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt + drawn[:-1]])).logits[0, len(prompt) - 1 :]
        assert logits.argmax(-1).tolist() == drawn


@pytest.mark.parametrize("chunk", [512, 17, 5])
def test_together_in_chunks_over_scrambled_blocks(
    runner: TorchRunner, prompts: list[list[int]], alone: list[list[int]], chunk: int
) -> None:
    sequences = sequences_for(prompts, NUM_TOKENS, 16, scramble=chunk)
    assert run(runner, sequences, NUM_TOKENS, chunk) == alone


def test_joining_at_every_step(
    runner: TorchRunner, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    """Sequences join one by one, so that prefill chunks and decodes share each step."""
    waiting = sequences_for(prompts, NUM_TOKENS, 16, scramble=7)
    everything = list(waiting)
    running: list[TestSequence] = []
    while waiting or running:
        running += waiting[:2]
        waiting = waiting[2:]
        step(runner, running, 24)
        running = [item for item in running if len(item.drawn) < NUM_TOKENS]
    assert [item.tokens[item.num_prompt :] for item in everything] == alone


def test_recomputed_after_losing_its_blocks(
    runner: TorchRunner, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    """Preemption by recompute, mid-decode: other blocks, everything computed again."""
    sequences = sequences_for(prompts[:8], NUM_TOKENS, 16, scramble=1)
    run(runner, sequences, 3)
    for offset, item in enumerate(sequences):
        item.table = [200 + offset * 10 + index for index in range(len(item.table))]
        item.computed = 0
    assert run(runner, sequences, NUM_TOKENS, 9) == alone[:8]


def test_bfloat16_stays_close() -> None:
    """In bfloat16 the first token's log-probabilities are near those in float32."""
    source = resolve_model("smollm2-135m")
    prompt = [504, 3575, 282, 4649, 314]
    logprobs = []
    for dtype in ("float32", "bfloat16"):
        runner = load_runner(source, dtype=dtype, num_kv_blocks=4, block_size=16)
        sequences = sequences_for([prompt], 1, 16)
        sequences[0].params = type(sequences[0].params)(temperature=0.0, logprobs=5)
        run(runner, sequences, 1)
        logprobs.append(dict(sequences[0].drawn[0].top_logprobs))
    exact, rough = logprobs
    shared = exact.keys() & rough.keys()
    assert len(shared) >= 4
    assert all(abs(exact[token] - rough[token]) < 0.15 for token in shared)


GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)


def engine_of(runner: TorchRunner, **settings: Any) -> LLMEngine:
    """An engine around the model, without calibration, so that its plans are the same each time."""
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    return LLMEngine.from_parts(runner, tokenizer, EngineOptions(calibrate=False, **settings))


def collect(engine: LLMEngine, tokens: dict[str, list[int]]) -> None:
    """Run a step and note what each request gained."""
    for output in engine.step():
        for choice in output.choices:
            tokens.setdefault(output.request_id, []).extend(choice.token_ids)
    engine.check_integrity()


def finish(engine: LLMEngine, tokens: dict[str, list[int]]) -> None:
    """Run to the end and check that nothing is left (I0)."""
    while engine.has_unfinished():
        collect(engine, tokens)
    assert engine.stats().num_held_blocks == 0


@pytest.mark.parametrize("caching", [True, False])
def test_the_engine_draws_the_same_batched_twice(
    runner: TorchRunner, prompts: list[list[int]], alone: list[list[int]], caching: bool
) -> None:
    """All at once over chunks of 64, then again: with the cache on, the second time is hits."""
    engine = engine_of(runner, enable_prefix_caching=caching, max_num_batched_tokens=64)
    for turn in range(2):
        tokens: dict[str, list[int]] = {}
        for index, prompt in enumerate(prompts):
            engine.add_request(f"{turn}/{index}", prompt, GREEDY, tier=index % 3)
        finish(engine, tokens)
        assert [tokens[f"{turn}/{index}"] for index in range(len(prompts))] == alone
    assert (engine.stats().num_prefix_hits > 0) is caching


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("moment", ["prefill", "first token", "mid-decode"])
def test_the_engine_draws_the_same_when_preempted(
    runner: TorchRunner,
    prompts: list[list[int]],
    alone: list[list[int]],
    moment: str,
    caching: bool,
) -> None:
    """With one slot, a critical request takes it from each prompt at the moment named."""
    chunk = 4 if moment == "prefill" else 64
    engine = engine_of(
        runner, enable_prefix_caching=caching, max_num_batched_tokens=chunk, max_num_seqs=1
    )
    for index, prompt in enumerate(prompts):
        until = {"prefill": 0, "first token": 1, "mid-decode": 3}[moment]
        if moment == "prefill" and len(prompt) <= chunk:
            continue
        tokens: dict[str, list[int]] = {}
        engine.add_request("bulk", prompt, GREEDY, tier="bulk")
        collect(engine, tokens)
        while len(tokens.get("bulk", [])) < until:
            collect(engine, tokens)
        assert len(tokens.get("bulk", [])) == until
        preemptions = engine.stats().num_preemptions
        engine.add_request("critical", prompts[0], GREEDY, tier="critical")
        finish(engine, tokens)
        assert engine.stats().num_preemptions == preemptions + 1
        assert tokens == {"bulk": alone[index], "critical": alone[0]}
