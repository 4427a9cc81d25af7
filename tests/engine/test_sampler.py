"""Does each sampling parameter do what its name says, for its own row only?"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.draw import uniform
from headway.engine.runner import SequenceSlice, StepResult
from headway.engine.sampler import sample
from headway.engine.sampling_params import SamplingParams

VOCAB = 2000
PROMPT = (5, 6, 7)


def _slice(
    name: str = "a",
    tokens: Sequence[int] = PROMPT,
    seed: int = 0,
    banned: frozenset[int] = frozenset(),
    **params: Any,
) -> SequenceSlice:
    return SequenceSlice(
        name,
        tokens,
        len(PROMPT),
        len(tokens) - 1,
        len(tokens),
        [0],
        True,
        SamplingParams(**params),
        seed,
        banned,
    )


def _logits(seed: int, rows: int = 1, vocab: int = VOCAB) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocab, generator=generator) * 3


def _one(logits: torch.Tensor, item: SequenceSlice) -> int:
    result = sample(logits, [item])
    assert not result.failed
    return result.sampled[item.sequence_id].token_id


def _counts(logits: torch.Tensor, num: int, **params: Any) -> Counter[int]:
    """Tokens drawn by `num` seeds from the same logits, in one batch."""
    items = [_slice(str(seed), seed=seed, **params) for seed in range(num)]
    result = sample(logits.expand(num, -1).clone(), items)
    return Counter(token.token_id for token in result.sampled.values())


@given(st.integers(0, 50), st.integers(0, 2**64 - 1), st.floats(0.05, 2.0))
@settings(max_examples=50, deadline=None)
def test_top_k_of_one_is_greedy(case: int, seed: int, temperature: float) -> None:
    logits = _logits(case).bfloat16()
    best = int(logits[0].argmax())
    assert _one(logits, _slice(temperature=0.0, seed=seed)) == best
    assert _one(logits, _slice(temperature=temperature, top_k=1, seed=seed)) == best
    assert _one(logits, _slice(temperature=1e-9, seed=seed)) == best


mixed_params = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.0]),
        "top_p": st.sampled_from([0.05, 0.5, 0.95, 0.9999, 1.0]),
        "top_k": st.sampled_from([-1, 0, 1, 5, 64, 65, 1500]),
        "min_p": st.sampled_from([0.0, 0.1]),
        "repetition_penalty": st.sampled_from([0.7, 1.0, 1.3]),
        "presence_penalty": st.sampled_from([0.0, 1.5]),
        "frequency_penalty": st.sampled_from([0.0, -0.5]),
        "logprobs": st.sampled_from([None, 0, 3]),
    }
)


@given(st.lists(mixed_params, min_size=2, max_size=6), st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_a_draw_does_not_depend_on_the_batch(params: list[dict[str, Any]], case: int) -> None:
    """G8: each row alone draws what it draws together with the others, in any order."""
    logits = _logits(case, len(params))
    logits[0] *= 0.1  # nearly flat: top_p needs more candidates than are sorted at first
    items = [
        _slice(str(row), [*PROMPT, 9, 9, row], seed=row + case, **each)
        for row, each in enumerate(params)
    ]
    together = sample(logits.clone(), items).sampled
    backwards = sample(logits.flip(0).clone(), items[::-1]).sampled
    for row, item in enumerate(items):
        alone = sample(logits[row : row + 1].clone(), [item]).sampled
        assert alone[str(row)].token_id == together[str(row)].token_id
        assert backwards[str(row)].token_id == together[str(row)].token_id


def test_seed_and_position_alone_decide_the_draw() -> None:
    logits = _logits(1) * 0.3
    drawn = {_one(logits, _slice(seed=seed)) for seed in range(50)}
    assert len(drawn) > 25
    again = [_one(logits, _slice(seed=3)) for _ in range(3)]
    assert len(set(again)) == 1
    by_position = {_one(logits, _slice(tokens=[*PROMPT, *range(extra)])) for extra in range(50)}
    assert len(by_position) > 25


@given(st.integers(-(2**63), 2**64), st.integers(0, 2**20))
def test_uniform_is_strictly_inside_the_interval(seed: int, position: int) -> None:
    value = uniform(seed, position)
    assert 0.0 < value < 1.0
    assert value == uniform(seed, position)


@pytest.mark.parametrize("by_seed", [True, False])
def test_uniform_spreads_evenly(by_seed: bool) -> None:
    draws = sorted(uniform(*((index, 9) if by_seed else (9, index))) for index in range(4000))
    furthest = max(abs(value - (rank + 0.5) / 4000) for rank, value in enumerate(draws))
    assert furthest < 1.95 / math.sqrt(4000)  # Kolmogorov-Smirnov, one in a thousand


def test_draws_follow_the_probabilities() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))
    cases: list[dict[str, Any]] = [{}, {"top_p": 0.9999}, {"top_k": 3, "top_p": 0.9999}]
    for params in cases:
        counts = _counts(logits, 4000, **params)
        shares = [0.5, 0.3, 0.15, 0.05][: int(params.get("top_k", 4))]
        for token, share in enumerate(shares):
            wanted = share / sum(shares)
            spread = math.sqrt(wanted * (1 - wanted) / 4000)
            assert abs(counts[token] / 4000 - wanted) < 4 * spread


def test_temperature_scales_the_logits() -> None:
    counts = _counts(torch.tensor([[0.0, 1.0]]), 4000, temperature=0.5)
    assert counts[1] / 4000 == pytest.approx(math.exp(2) / (1 + math.exp(2)), abs=0.03)


@given(st.integers(0, 30), st.floats(0.01, 0.999), st.sampled_from([0, 1, 7, 100, 1500]), st.data())
@settings(max_examples=60, deadline=None)
def test_nucleus_and_top_k_against_plain_python(
    case: int, top_p: float, top_k: int, data: st.DataObject
) -> None:
    """The drawn token is one that the definition keeps."""
    scale = data.draw(st.sampled_from([0.01, 0.3, 1.0]))
    logits = _logits(case) * scale
    probs = torch.softmax(logits[0], -1).double().tolist()
    order = sorted(range(VOCAB), key=lambda token: -probs[token])[: top_k or VOCAB]
    total = sum(probs[token] for token in order)
    kept, before = set(), 0.0
    for token in order:
        if before >= top_p * total * (1 + 1e-6):
            break
        kept.add(token)
        before += probs[token]
    item = _slice(seed=data.draw(st.integers(0, 2**32)), top_p=top_p, top_k=top_k)
    assert _one(logits, item) in kept


def test_the_whole_nucleus_is_reachable() -> None:
    logits = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]]))
    assert set(_counts(logits, 300, top_p=0.65)) == {0, 1}
    assert set(_counts(logits, 300, top_p=0.75)) == {0, 1, 2}
    assert set(_counts(logits, 300, top_k=3)) == {0, 1, 2}
    assert set(_counts(logits, 300, min_p=0.45)) == {0, 1, 2}
    assert set(_counts(logits, 300, min_p=0.55)) == {0, 1}
    assert set(_counts(logits, 300)) == {0, 1, 2, 3}


def test_penalties_against_plain_python() -> None:
    tokens = [*PROMPT, 8, 8, 9, 5]
    settings_: tuple[dict[str, Any], ...] = (
        {"repetition_penalty": 1.8},
        {"repetition_penalty": 0.6},
        {"presence_penalty": 1.7},
        {"frequency_penalty": 0.9},
        {"presence_penalty": -1.0, "frequency_penalty": -1.0, "repetition_penalty": 1.2},
        {"logit_bias": {8: 4.0, 700: 100.0}},
        {"logit_bias": {9: -100.0}, "presence_penalty": 0.5},
    )
    for case, params in enumerate(settings_):
        # Few tokens stand out, all of which the parameters touch, so that each one matters.
        logits = torch.full((1, VOCAB), -20.0)
        logits[0, [5, 6, 7, 8, 9, 11]] = _logits(case)[0, :6] * 0.4
        row = logits[0].tolist()
        wanted = _penalised(row, tokens, SamplingParams(**params))
        for banned in (frozenset[int](), frozenset({wanted.index(max(wanted))})):
            expected = [-math.inf if t in banned else value for t, value in enumerate(wanted)]
            item = _slice(tokens=tokens, temperature=0.0, banned=banned, **params)
            assert _one(logits.clone(), item) == expected.index(max(expected))
        counts = Counter(
            _one(logits.clone(), _slice(tokens=tokens, seed=seed, **params)) for seed in range(400)
        )
        weights = [math.exp(value - max(wanted)) for value in wanted]
        for token in (5, 6, 7, 8, 9, 11):
            assert counts[token] / 400 == pytest.approx(weights[token] / sum(weights), abs=0.11)


def _penalised(row: list[float], tokens: list[int], params: SamplingParams) -> list[float]:
    out = list(row)
    for token, bias in params.logit_bias.items():
        out[token] += bias
    for token in set(tokens):
        scale = params.repetition_penalty
        out[token] = out[token] / scale if out[token] > 0 else out[token] * scale
    for token, count in Counter(tokens[len(PROMPT) :]).items():
        out[token] -= params.presence_penalty + count * params.frequency_penalty
    return out


def test_presence_and_frequency_leave_the_prompt_alone() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, PROMPT[0]] = 1.0
    params: dict[str, Any] = {"presence_penalty": 2.0, "frequency_penalty": 2.0, "temperature": 0.0}
    assert _one(logits.clone(), _slice(**params)) == PROMPT[0]
    assert _one(logits.clone(), _slice(tokens=[*PROMPT, PROMPT[0]], **params)) != PROMPT[0]


def test_logprobs_are_those_of_the_raw_logits() -> None:
    """As in vLLM: before bias, penalties and temperature; the drawn token's always included."""
    logits = _logits(4, 3)
    items = [
        _slice("none"),
        _slice("own", logprobs=0, temperature=0.4, logit_bias={77: 100.0}),
        _slice("top", logprobs=20, temperature=0.0, repetition_penalty=2.0),
    ]
    sampled = sample(logits.clone(), items).sampled
    exact = logits.double().log_softmax(-1)
    assert sampled["none"].logprob is None
    assert sampled["own"].token_id == 77
    assert sampled["own"].logprob == pytest.approx(float(exact[1, 77]), abs=1e-5)
    assert sampled["own"].top_logprobs == ()
    top = sampled["top"].top_logprobs
    assert [token for token, _ in top] == exact[2].topk(20).indices.tolist()
    assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
    for token, value in top:
        assert value == pytest.approx(float(exact[2, token]), abs=1e-5)


@pytest.mark.parametrize("num_best", [2, 5, VOCAB])
@pytest.mark.parametrize("num_top", [1, 3])
def test_of_equally_probable_tokens_the_drawn_one_is_listed_first(
    num_best: int, num_top: int
) -> None:
    """Logits in bfloat16 tie often; a greedy answer is the first of its own list."""
    logits = torch.zeros(1, VOCAB, dtype=torch.bfloat16)
    logits[0, VOCAB - num_best :] = 3.0
    token = sample(logits, [_slice(logprobs=num_top, temperature=0.0)]).sampled["a"]
    values = [logprob for _, logprob in token.top_logprobs]
    assert len(values) == len({token_id for token_id, _ in token.top_logprobs}) == num_top
    assert token.top_logprobs[0] == (token.token_id, token.logprob)
    assert values == sorted(values, reverse=True)


def test_logprobs_sum_to_one() -> None:
    logits = _logits(5, vocab=20)
    token = sample(logits, [_slice(logprobs=20)]).sampled["a"]
    assert sum(math.exp(value) for _, value in token.top_logprobs) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"top_p": 0.9, "logprobs": 2}])
def test_a_row_that_is_not_finite_fails_alone(bad: float, params: dict[str, Any]) -> None:
    logits = _logits(6, 3)
    items = [_slice(name, seed=4, **params) for name in "abc"]
    sound = sample(logits.clone(), items)
    logits[1, 17] = bad
    result = sample(logits.clone(), items)
    assert result.failed == {"b": "the model's logits are not finite"}
    assert result.sampled == {name: sound.sampled[name] for name in "ac"}


def test_impossible_rows_fail_alone() -> None:
    logits = _logits(7, 4)
    logits[3] = -math.inf
    items = [
        _slice("sound", temperature=0.0),
        _slice("banned", banned=frozenset(range(VOCAB))),
        _slice("bias", logit_bias={VOCAB: 1.0}),
        _slice("nothing"),
    ]
    result: StepResult = sample(logits, items)
    assert set(result.sampled) == {"sound"}
    assert result.failed == {
        "banned": "every token is banned",
        "bias": f"logit_bias names token {VOCAB}, the vocabulary has {VOCAB}",
        "nothing": "the model's logits are not finite",
    }


def test_banned_tokens_are_never_drawn() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 3] = 30.0
    for params in (
        {"temperature": 0.0},
        {},
        {"top_p": 0.5},
        {"top_k": 2},
        {"logit_bias": {3: 9.0}},
    ):
        for seed in range(20):
            item = _slice(seed=seed, banned=frozenset({3, VOCAB + 5}), **params)
            assert _one(logits.clone(), item) != 3


def test_a_token_of_no_probability_is_never_drawn() -> None:
    """Even where the running sum ends in a long run of zeros."""
    logits = torch.full((1, VOCAB), -1000.0)
    logits[0, 4:6] = 0.0
    for params in ({}, {"min_p": 0.5}, {"top_p": 0.99}, {"top_k": 1900}):
        assert set(_counts(logits, 200, **params)) == {4, 5}
