"""Does a step depend on its own sequences alone, whatever the cache holds?"""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.linear import Linear
from headway.engine.model_source import resolve_model
from headway.engine.runner import StepResult
from headway.engine.sampling_params import SamplingParams
from headway.engine.torch_runner import TorchRunner, load_runner
from tests.engine.gguf_files import VOCAB, random_tensors, write_gguf
from tests.engine.sequences import TestSequence, run, sequences_for, step

BLOCK = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Llama."""
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_gguf(path, "llama", random_tensors("llama"))
    torch.set_num_threads(1)
    return path


def _runner(model: Path, **options: Any) -> TorchRunner:
    return load_runner(
        resolve_model(str(model)),
        **{"dtype": "float32", "num_kv_blocks": 120, "block_size": BLOCK, **options},
    )


def _prompts(seed: int, lengths: tuple[int, ...]) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(VOCAB) for _ in range(length)] for length in lengths]


def _spoil(runner: TorchRunner, value: float) -> None:
    """Write `value` over every block of the pool."""
    pool = runner._cache  # noqa: SLF001 - only the pool itself can be spoilt
    pool[:, : runner.num_blocks].fill_(value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
def test_garbage_in_unused_slots_changes_nothing(model: Path, dtype: str, garbage: float) -> None:
    runner = _runner(model, dtype=dtype)
    prompts = _prompts(1, (1, 3, 4, 5, 30, 31, 32, 33))
    params = SamplingParams(temperature=0.0, logprobs=3)
    drawn = []
    for value in (0.0, garbage):
        for chunk in (512, 5):
            _spoil(runner, value)
            sequences = sequences_for(prompts, 6, BLOCK, scramble=chunk, params=params)
            run(runner, sequences, 6, chunk)
            drawn.append([item.drawn for item in sequences])
    assert drawn[2:] == drawn[:2]


def test_a_sequence_that_is_not_finite_fails_alone_and_leaves_no_trace(model: Path) -> None:
    runner = _runner(model)
    good, bad, later = sequences_for(_prompts(2, (10, 9, 8)), 6, BLOCK)
    expected = run(runner, [good], 6)[0]
    good.computed, good.drawn = 0, []
    del good.tokens[good.num_prompt :]
    bad.computed = 4
    runner._cache[:, bad.table[0]].fill_(float("nan"))  # noqa: SLF001 - a fault from outside
    result = runner.execute([good.slice(99), bad.slice(99)], [])
    assert result.failed == {bad.name: "the model's logits are not finite"}
    assert result.sampled[good.name].token_id == expected[0]
    clean = _runner(model)
    wanted = run(clean, sequences_for([later.tokens], 6, BLOCK), 6)[0]
    later.table = bad.table
    assert run(runner, [later], 6) == [wanted]


def test_block_copies_come_first_and_in_order(model: Path) -> None:
    """A fork's partial block, copied twice over, continues like the original."""
    runner = _runner(model)
    first = sequences_for(_prompts(3, (10,)), 8, BLOCK)[0]
    step(runner, [first])
    second = TestSequence("copy", first.tokens[:10], [*first.table[:2], 61, 62, 63])
    second.tokens, second.computed = list(first.tokens), 10
    expected = run(runner, [first], 8)[0]
    # 60 is what the block holds before it is overwritten by the second copy.
    part = second.slice(1)
    runner.execute([], [(first.table[2], 60)])
    result = runner.execute([part], [(60, 61), (first.table[0], 60)])
    assert result.sampled["copy"].token_id == expected[1]
    assert torch.equal(runner._cache[:, 60], runner._cache[:, first.table[0]])  # noqa: SLF001


def test_shared_prefix_blocks(model: Path) -> None:
    """Two sequences whose first blocks are the same blocks draw what they draw apart."""
    runner = _runner(model)
    prefix, *tails = _prompts(4, (8, 3, 6))
    wanted = [run(runner, sequences_for([prefix + tail], 5, BLOCK), 5)[0] for tail in tails]
    one = TestSequence("one", prefix + tails[0], [7, 8, 9, 10])
    two = TestSequence("two", prefix + tails[1], [7, 8, 20, 21, 22])
    step(runner, [one])
    two.computed = 8
    run(runner, [one, two], 5)
    assert [item.tokens[item.num_prompt :][:5] for item in (one, two)] == wanted


def test_nothing_to_do(model: Path) -> None:
    runner = _runner(model)
    assert runner.execute([], []) == StepResult()
    part = sequences_for([[1, 2, 3]], 1, BLOCK)[0].slice(2)._replace(sample=False)
    assert runner.execute([part], []) == StepResult()


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    budget=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_any_split_into_steps_draws_the_same(
    model: Path, lengths: list[int], budget: int, seed: int
) -> None:
    """G8: random subsets of the sequences, in chunks of random sizes, seeded draws included."""
    rng = random.Random(seed)
    prompts = _prompts(seed, tuple(lengths))
    params = SamplingParams(temperature=0.8, top_p=0.9)
    runner = _runner(model, num_kv_blocks=200)
    alone = []
    for index, prompt in enumerate(prompts):
        item = sequences_for([prompt], 3, BLOCK, params=params)[0]
        item.seed = index
        alone += run(runner, [item], 3)
    together = sequences_for(prompts, 3, BLOCK, scramble=seed, params=params)
    while active := [item for item in together if len(item.drawn) < 3]:
        step(runner, rng.sample(active, rng.randint(1, len(active))), rng.randint(1, budget))
    assert [item.tokens[item.num_prompt :] for item in together] == alone


def test_unpacked_products_are_the_same() -> None:
    """Where PyTorch has no oneDNN, the plain product computes what the packed one does."""
    generator = torch.Generator().manual_seed(0)
    weight, bias, x = (
        torch.randn(*size, generator=generator) for size in ((24, 16), (24,), (5, 16))
    )
    other = torch.randn(5, 24, generator=generator)
    for chosen in (None, bias):
        packed, plain = (
            Linear(weight, chosen, torch.float32, packed=flag) for flag in (True, False)
        )
        pairs = (
            (packed(x), plain(x)),
            (packed.silu(x), plain.silu(x)),
            (packed.times(x, other), plain.times(x, other)),
            (packed.plus(x, other), plain.plus(x, other)),
        )
        for one, two in pairs:
            torch.testing.assert_close(one, two)
        torch.testing.assert_close(packed(x), x @ weight.T + (0.0 if chosen is None else chosen))
