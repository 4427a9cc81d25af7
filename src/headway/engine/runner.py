"""What does a model have to offer, so that the engine can run it?

`ModelRunner` is the seam between deciding and computing. `TorchRunner` computes a real model;
`FakeRunner` (`fake_runner.py`) is deterministic and ships, for tests and for users' own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headway.engine.sampling_params import SamplingParams


class SequenceSlice(NamedTuple):
    """The tokens of one sequence that one iteration computes. A tuple: a step makes hundreds.

    `token_ids` are all tokens of the sequence so far (prompt, then output); this slice computes
    positions `start` to `end` (exclusive), whose KV goes to the blocks of `block_table`. When
    `sample`, `end == len(token_ids)` and one token is drawn from the last position's logits.
    """

    sequence_id: str
    token_ids: Sequence[int]
    num_prompt_tokens: int
    start: int
    end: int
    block_table: Sequence[int]
    sample: bool
    params: SamplingParams
    seed: int
    """Seeds the draw; the same seed and position draw the same token, whatever else is batched."""
    banned_token_ids: frozenset[int] = frozenset()
    """Tokens that may not be drawn at this position (end of text before min_tokens)."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One drawn token, with log-probabilities when they were asked for."""

    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    """(token id, log-probability), most probable first; as many as `params.logprobs`."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one iteration produced."""

    sampled: dict[str, SampledToken] = field(default_factory=dict)
    """By sequence id, one entry for each slice with `sample`."""
    failed: dict[str, str] = field(default_factory=dict)
    """Sequences that could not be sampled (say, NaN logits), with the reason."""


class ModelRunner(Protocol):
    """A model with its KV pool."""

    vocab_size: int
    max_model_len: int
    num_blocks: int
    block_size: int

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """Copy blocks `(source, destination)`, then compute all slices in one forward pass."""
