"""How fast does the runner alone compute a batch of requests, without any engine around it?

Prompts are prefilled in chunks of `--chunk` tokens, then all sequences decode together. Prints
one JSON object; times are those of the best of `--repeat` runs.
"""

import argparse
import json
import random
import time

import torch

from headway.engine.model_source import resolve_model
from headway.engine.runner import SequenceSlice
from headway.engine.sampling_params import SamplingParams
from headway.engine.torch_runner import TorchRunner, load_runner

BLOCK_SIZE = 16


class Sequences:
    """Token lists and blocks of all requests."""

    def __init__(self, runner: TorchRunner, options: argparse.Namespace) -> None:
        rng = random.Random(options.seed)
        needed = -(-(options.input_len + options.output_len) // BLOCK_SIZE)
        blocks = list(range(options.requests * needed))
        rng.shuffle(blocks)
        self.params = SamplingParams(temperature=options.temperature, max_tokens=options.output_len)
        self.tokens = [
            [rng.randrange(runner.vocab_size) for _ in range(options.input_len)]
            for _ in range(options.requests)
        ]
        self.tables = [
            blocks[index * needed : (index + 1) * needed] for index in range(options.requests)
        ]
        self.input_len = options.input_len

    def slice(self, index: int, start: int, end: int) -> SequenceSlice:
        """Tokens `start` to `end` of request `index`."""
        tokens = self.tokens[index]
        sample = end == len(tokens)
        return SequenceSlice(
            str(index),
            tokens,
            self.input_len,
            start,
            end,
            self.tables[index],
            sample,
            self.params,
            index,
        )


def prefill(runner: TorchRunner, sequences: Sequences, chunk: int) -> None:
    """Compute all prompts, `chunk` tokens a step, and append the first token of each."""
    step: list[SequenceSlice] = []
    room = chunk
    for index, tokens in enumerate(sequences.tokens):
        start = 0
        length = len(tokens)
        while start < length:
            end = min(length, start + room)
            step.append(sequences.slice(index, start, end))
            room -= end - start
            start = end
            if room == 0:
                compute(runner, sequences, step)
                step, room = [], chunk
    if step:
        compute(runner, sequences, step)


def compute(runner: TorchRunner, sequences: Sequences, step: list[SequenceSlice]) -> None:
    """Run one step and append what it drew."""
    result = runner.execute(step, [])
    for sequence_id, token in result.sampled.items():
        sequences.tokens[int(sequence_id)].append(token.token_id)


def measure(runner: TorchRunner, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of one run over fresh sequences."""
    sequences = Sequences(runner, options)
    begin = time.perf_counter()
    prefill(runner, sequences, options.chunk)
    middle = time.perf_counter()
    for _ in range(options.output_len - 1):
        compute(
            runner,
            sequences,
            [
                sequences.slice(index, len(tokens) - 1, len(tokens))
                for index, tokens in enumerate(sequences.tokens)
            ],
        )
    return {"prefill_s": middle - begin, "decode_s": time.perf_counter() - middle}


def main() -> None:
    """Parse the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    begin = time.perf_counter()
    blocks = options.requests * -(-(options.input_len + options.output_len) // BLOCK_SIZE)
    runner = load_runner(
        resolve_model(options.model),
        dtype=options.dtype,
        num_kv_blocks=blocks,
        block_size=BLOCK_SIZE,
    )
    load_s = time.perf_counter() - begin
    runs = [measure(runner, options) for _ in range(options.repeat)]
    best = min(runs, key=lambda run: run["prefill_s"] + run["decode_s"])
    elapsed = best["prefill_s"] + best["decode_s"]
    total = options.requests * (options.input_len + options.output_len)
    report = {
        **vars(options),
        "dtype": str(runner.dtype),
        "load_s": round(load_s, 3),
        "prefill_s": round(best["prefill_s"], 3),
        "decode_s": round(best["decode_s"], 3),
        "prefill_tok_per_s": round(options.requests * options.input_len / best["prefill_s"], 1),
        "decode_step_ms": round(1000 * best["decode_s"] / max(1, options.output_len - 1), 2),
        "total_tok_per_s": round(total / elapsed, 1),
    }
    print(json.dumps(report, indent=1))  # noqa: T201 - the report is what this command is for


if __name__ == "__main__":
    main()
