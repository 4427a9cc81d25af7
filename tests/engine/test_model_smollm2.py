"""Does the packaged SmolLM2 compute what Hugging Face transformers computes? (G8)"""

import random
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from headway.engine.model_source import resolve_model
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
    torch.set_num_threads(2)
    return load_runner(
        resolve_model("smollm2-135m"), dtype="float32", num_kv_blocks=400, block_size=16
    )


@pytest.fixture(scope="module")
def expected() -> tuple[list[list[int]], list[list[int]]]:
    """Prompts, and the tokens that transformers draws greedily in float32."""
    torch.set_num_threads(2)
    source = resolve_model("smollm2-135m")
    place: dict[str, Any] = {"gguf_file": source.path.name}
    config = AutoConfig.from_pretrained(source.path.parent, **place)
    model = LlamaForCausalLM(config).eval()
    load: Any = load_gguf_checkpoint
    read = load(str(source.path), return_tensors=True, model_to_load=model)
    missing, unknown = model.load_state_dict(read["tensors"], strict=False)
    assert not unknown
    assert missing == ["lm_head.weight"]
    model.tie_weights()
    tokenizer = AutoTokenizer.from_pretrained(source.path.parent, **place)
    prompts = [tokenizer(text)["input_ids"] for text in TEXTS]
    rng = random.Random(0)
    prompts += [[rng.randrange(49152) for _ in range(length)] for length in (31, 32, 33, 100, 190)]
    return prompts, [_greedy(model, prompt) for prompt in prompts]


def _greedy(model: Any, prompt: list[int]) -> list[int]:
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            max_new_tokens=NUM_TOKENS,
            min_new_tokens=NUM_TOKENS,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
        )
    return out[0, len(prompt) :].tolist()  # type: ignore[no-any-return]  # transformers is untyped


Expected = tuple[list[list[int]], list[list[int]]]


def test_alone(runner: TorchRunner, expected: Expected) -> None:
    prompts, wanted = expected
    assert len(prompts) >= 30
    for prompt, tokens in zip(prompts, wanted, strict=True):
        assert run(runner, sequences_for([prompt], NUM_TOKENS, 16), NUM_TOKENS) == [tokens]


@pytest.mark.parametrize("chunk", [512, 17, 5])
def test_together_in_chunks_over_scrambled_blocks(
    runner: TorchRunner, expected: Expected, chunk: int
) -> None:
    prompts, wanted = expected
    sequences = sequences_for(prompts, NUM_TOKENS, 16, scramble=chunk)
    assert run(runner, sequences, NUM_TOKENS, chunk) == wanted


def test_joining_at_every_step(runner: TorchRunner, expected: Expected) -> None:
    """Sequences join one by one, so that prefill chunks and decodes share each step."""
    prompts, wanted = expected
    waiting = sequences_for(prompts, NUM_TOKENS, 16, scramble=7)
    everything = list(waiting)
    running: list[TestSequence] = []
    while waiting or running:
        running += waiting[:2]
        waiting = waiting[2:]
        step(runner, running, 24)
        running = [item for item in running if len(item.drawn) < NUM_TOKENS]
    assert [item.tokens[item.num_prompt :] for item in everything] == wanted


def test_recomputed_after_losing_its_blocks(runner: TorchRunner, expected: Expected) -> None:
    """Preemption by recompute, mid-decode: other blocks, everything computed again."""
    prompts, wanted = expected
    sequences = sequences_for(prompts[:8], NUM_TOKENS, 16, scramble=1)
    run(runner, sequences, 3)
    for offset, item in enumerate(sequences):
        item.table = [200 + offset * 10 + index for index in range(len(item.table))]
        item.computed = 0
    assert run(runner, sequences, NUM_TOKENS, 9) == wanted[:8]


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
