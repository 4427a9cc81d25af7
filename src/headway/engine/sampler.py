"""Which token comes next, given the logits of each sequence?

The order is vLLM's: log-probabilities from the raw logits; banned tokens, logit_bias, penalties;
greedy choice, or temperature, min_p, top_k, top_p and a draw. A row's token depends on that row
alone: draws come from (seed, position), never from shared state, so that neither the batch nor
preemption changes an answer (G8).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.engine.draw import draw_tokens
from headway.engine.runner import SampledToken, SequenceSlice, StepResult
from headway.engine.sampling_params import SamplingParams

GREEDY_TEMPERATURE = 1e-5
"""Below this, dividing by the temperature would overflow, and the choice is greedy anyway."""

_MINUS_INFINITY = float("-inf")


def sample(logits: Tensor, slices: Sequence[SequenceSlice]) -> StepResult:
    """Draw one token for each row of `logits`, `[rows, vocab]`, which belongs to `slices[row]`.

    A row whose logits are not finite, whose tokens are all banned, or whose logit_bias names no
    token of the vocabulary is reported in `failed`; the others are not touched by it.
    """
    best, greedy = logits.max(-1)
    token_ids: list[int] = greedy.tolist()
    failed = {
        item.sequence_id: "the model's logits are not finite"
        for item, finite in zip(slices, best.isfinite().tolist(), strict=True)
        if not finite
    }
    rows = [
        row
        for row, item in enumerate(slices)
        if item.sequence_id not in failed and not _takes_raw_maximum(item)
    ]
    if rows:
        chosen = _choose(logits[rows].float(), [slices[row] for row in rows], failed)
        for row, token_id in zip(rows, chosen, strict=True):
            token_ids[row] = token_id
    kept = [row for row, item in enumerate(slices) if item.sequence_id not in failed]
    logprobs = _logprobs(logits, slices, token_ids, kept)
    sampled = {
        slices[row].sequence_id: logprobs.get(row) or SampledToken(token_ids[row]) for row in kept
    }
    return StepResult(sampled, failed)


def is_greedy(params: SamplingParams) -> bool:
    """Whether the most probable token is taken."""
    return params.temperature < GREEDY_TEMPERATURE or params.top_k == 1


def _takes_raw_maximum(item: SequenceSlice) -> bool:
    return is_greedy(item.params) and not item.banned_token_ids and not _changes_logits(item.params)


def _changes_logits(params: SamplingParams) -> bool:
    return (
        bool(params.logit_bias)
        or params.repetition_penalty != 1.0
        or params.presence_penalty != 0.0
        or params.frequency_penalty != 0.0
    )


def _choose(logits: Tensor, slices: list[SequenceSlice], failed: dict[str, str]) -> list[int]:
    """The token of each row of `logits`, float32 and changed in place; 0 for a row that fails."""
    for values, item in zip(logits.unbind(0), slices, strict=True):
        problem = _adjust_(values, item)
        if problem is not None:
            failed[item.sequence_id] = problem
    best, greedy = logits.max(-1)
    chosen: list[int] = greedy.tolist()
    drawing = []
    for row, (item, finite) in enumerate(zip(slices, best.isfinite().tolist(), strict=True)):
        if item.sequence_id in failed:
            continue
        if not finite:
            failed[item.sequence_id] = "every token is banned"
        elif not is_greedy(item.params):
            drawing.append(row)
    if drawing:
        tokens = draw_tokens(logits[drawing], [slices[row] for row in drawing])
        for row, token_id in zip(drawing, tokens, strict=True):
            chosen[row] = token_id
    return chosen


def _adjust_(row: Tensor, item: SequenceSlice) -> str | None:
    """Apply bans, bias and penalties to one row of logits; the reason when that is impossible."""
    params = item.params
    vocab_size = row.shape[0]
    banned = [token_id for token_id in item.banned_token_ids if 0 <= token_id < vocab_size]
    if banned:
        row[banned] = _MINUS_INFINITY
    if params.logit_bias:
        outside = [token for token in params.logit_bias if not 0 <= token < vocab_size]
        if outside:
            return f"logit_bias names token {outside[0]}, the vocabulary has {vocab_size}"
        row[list(params.logit_bias)] += torch.tensor(list(params.logit_bias.values()))
    if params.repetition_penalty != 1.0:
        seen = torch.unique(torch.tensor(item.token_ids))
        values = row[seen]
        penalty = params.repetition_penalty
        row[seen] = torch.where(values > 0, values / penalty, values * penalty)
    output = item.token_ids[item.num_prompt_tokens :]
    if output and (params.presence_penalty != 0.0 or params.frequency_penalty != 0.0):
        seen, counts = torch.unique(torch.tensor(output), return_counts=True)
        row[seen] -= counts * params.frequency_penalty + params.presence_penalty
    return None


def _logprobs(
    logits: Tensor, slices: Sequence[SequenceSlice], token_ids: list[int], kept: list[int]
) -> dict[int, SampledToken]:
    """By row, tokens with log-probabilities, for those of the `kept` rows that ask for them."""
    asked = {row: slices[row].params.logprobs for row in kept}
    wanted = {row: count for row, count in asked.items() if count is not None}
    if not wanted:
        return {}
    rows = list(wanted)
    logprobs = logits[rows].float().log_softmax(-1)
    drawn = torch.tensor([token_ids[row] for row in rows]).unsqueeze(1)
    own: list[float] = logprobs.gather(1, drawn).squeeze(1).tolist()
    most = min(max(wanted.values()), logits.shape[1])
    values, ids = logprobs.topk(most, -1)
    tops = zip(ids.tolist(), values.tolist(), strict=True)
    return {
        row: SampledToken(
            token_ids[row],
            logprob,
            _most_probable((token_ids[row], logprob), [*zip(*top, strict=True)][: wanted[row]]),
        )
        for row, logprob, top in zip(rows, own, tops, strict=True)
    }


def _most_probable(
    drawn: tuple[int, float], top: list[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    """Put the drawn token first of those as probable, which `topk` returns in any order."""
    if top and drawn not in top and drawn[1] == top[-1][1]:
        top[-1] = drawn
    return tuple(sorted(top, key=lambda each: (-each[1], each != drawn, each[0])))
