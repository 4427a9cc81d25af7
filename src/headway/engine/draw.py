"""Which token does a seeded draw pick from a distribution?"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.engine.runner import SequenceSlice
from headway.engine.sampling_params import SamplingParams

CANDIDATES = (64, 1024)
"""How many of the most probable tokens are sorted at first, and then, for top_k and top_p; a row
that needs more has its whole vocabulary sorted."""

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """A number strictly between 0 and 1, a pure function of both arguments.

    SplitMix64 (Steele, Lea and Flood, 2014), keyed by the seed and counted by the position.
    """
    state = _mix(_mix(seed & _MASK) + position * _GOLDEN)
    return ((state >> 32) + 0.5) / 2**32


def _mix(state: int) -> int:
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def draw_tokens(logits: Tensor, slices: Sequence[SequenceSlice]) -> list[int]:
    """One token for each row of `logits`, `[rows, vocab]` in float32, all temperatures above 0."""
    params = [item.params for item in slices]
    temperatures = torch.tensor([each.temperature for each in params])
    probs = torch.softmax(logits / temperatures.unsqueeze(1), -1)
    _apply_min_p_(probs, params)
    draws = torch.tensor(
        [uniform(item.seed, item.end) for item in slices], dtype=torch.float64
    ).unsqueeze(1)
    drawn = [0] * len(slices)
    pending = [row for row, each in enumerate(params) if _truncates(each, probs.shape[1])]
    plain = [row for row, each in enumerate(params) if not _truncates(each, probs.shape[1])]
    if plain:
        for row, index in zip(plain, _invert(probs[plain], draws[plain]), strict=True):
            drawn[row] = index
    for count in (*CANDIDATES, probs.shape[1]):
        pending = _draw_truncated(probs, draws, params, (pending, count), drawn)
    return drawn


def _truncates(params: SamplingParams, vocab_size: int) -> bool:
    return params.top_p < 1.0 or 0 < params.top_k < vocab_size


def _apply_min_p_(probs: Tensor, params: Sequence[SamplingParams]) -> None:
    rows = [row for row, each in enumerate(params) if each.min_p > 0.0]
    if not rows:
        return
    chosen = probs[rows]
    shares = torch.tensor([params[row].min_p for row in rows]).unsqueeze(1)
    least = chosen.amax(-1, keepdim=True) * shares
    probs[rows] = chosen.masked_fill_(chosen < least, 0.0)


def _draw_truncated(
    probs: Tensor,
    draws: Tensor,
    params: Sequence[SamplingParams],
    work: tuple[list[int], int],
    drawn: list[int],
) -> list[int]:
    """Draw those of the given rows whose top_k and top_p lie within the `count` most probable.

    `work` is (rows, count). Fills `drawn`; returns the rows that need more candidates.
    """
    rows, count = work
    vocab_size = probs.shape[1]
    count = min(count, vocab_size)
    if not rows:
        return []
    values, token_ids = probs[rows].topk(count, -1)
    values = values.double()
    limits = [params[row].top_k if params[row].top_k > 0 else vocab_size for row in rows]
    top_k = torch.tensor(limits).unsqueeze(1)
    top_p = torch.tensor([params[row].top_p for row in rows], dtype=torch.float64).unsqueeze(1)
    values.masked_fill_(torch.arange(count) >= top_k, 0.0)
    mass = values.cumsum(-1)
    total = torch.where(top_k <= count, mass[:, -1:], probs[rows].double().sum(-1, keepdim=True))
    # The nucleus is the shortest run of tokens that reaches top_p: those with less before them.
    values.masked_fill_(mass - values >= top_p * total, 0.0)
    # The mass of the top_k tokens, on which top_p acts, is known once all of them are sorted.
    enough = (top_k <= count) | ((top_k >= vocab_size) & (mass[:, -1:] >= top_p * total))
    complete = enough.squeeze(1).tolist()
    picks = _invert(values, draws[rows])
    for index, row in enumerate(rows):
        if complete[index] or count == vocab_size:
            drawn[row] = int(token_ids[index, picks[index]])
    if count == vocab_size:
        return []
    return [row for index, row in enumerate(rows) if not complete[index]]


def _invert(weights: Tensor, draws: Tensor) -> list[int]:
    """The index where each row's running sum passes `draw * total`: never one of weight 0."""
    mass = weights.cumsum(-1, dtype=torch.float64)
    indices: list[int] = (
        torch.searchsorted(mass, draws * mass[:, -1:], right=True).squeeze(1).tolist()
    )
    return indices
