"""How does a test drive a runner as an engine would, with blocks of its own?"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.engine.runner import ModelRunner, SampledToken, SequenceSlice
from headway.engine.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


@dataclass
class TestSequence:
    """One sequence with its blocks."""

    __test__ = False

    name: str
    tokens: list[int]
    table: list[int]
    params: SamplingParams = GREEDY
    seed: int = 0
    num_prompt: int = 0
    computed: int = 0
    drawn: list[SampledToken] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The tokens given are the prompt."""
        self.num_prompt = len(self.tokens)

    def slice(self, most: int) -> SequenceSlice:
        """The next tokens to compute, at most `most`."""
        end = min(len(self.tokens), self.computed + most)
        return SequenceSlice(
            self.name,
            self.tokens,
            self.num_prompt,
            self.computed,
            end,
            self.table,
            end == len(self.tokens),
            self.params,
            self.seed,
        )


def sequences_for(
    prompts: Sequence[Sequence[int]],
    num_tokens: int,
    block_size: int,
    *,
    scramble: int | None = None,
    params: SamplingParams = GREEDY,
) -> list[TestSequence]:
    """One sequence for each prompt, with room for `num_tokens` more; blocks in a random order
    seeded by `scramble`, or in order."""
    counts = [-(-(len(prompt) + num_tokens) // block_size) for prompt in prompts]
    blocks = list(range(sum(counts)))
    if scramble is not None:
        random.Random(scramble).shuffle(blocks)
    made = []
    for index, (prompt, count) in enumerate(zip(prompts, counts, strict=True)):
        made.append(TestSequence(f"s{index}", list(prompt), blocks[:count], params, seed=index))
        blocks = blocks[count:]
    return made


def run(
    runner: ModelRunner, sequences: Sequence[TestSequence], num_tokens: int, chunk: int = 512
) -> list[list[int]]:
    """Compute all sequences together, each at most `chunk` tokens a step, until each has drawn
    `num_tokens`; their drawn tokens."""
    while True:
        active = [item for item in sequences if len(item.drawn) < num_tokens]
        if not active:
            return [item.tokens[item.num_prompt :] for item in sequences]
        step(runner, active, chunk)


def step(runner: ModelRunner, active: Sequence[TestSequence], chunk: int = 512) -> None:
    """One iteration over all of `active`."""
    slices = [item.slice(chunk) for item in active]
    result = runner.execute(slices, [])
    assert not result.failed
    for item, part in zip(active, slices, strict=True):
        item.computed = part.end
        if part.sample:
            token = result.sampled[item.name]
            item.drawn.append(token)
            item.tokens.append(token.token_id)
