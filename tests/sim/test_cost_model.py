"""Do simulated steps take the time that the cost model's source says?"""

import json
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import pytest

from headway.core.predictor import StepFeatures
from headway.errors import ConfigError
from headway.sim.cost_model import A100_LLAMA3_8B, StepNoise, cost_model

NOTHING = StepFeatures()


def prefill(num_tokens: int) -> float:
    return A100_LLAMA3_8B.time_s(NOTHING.plus_prefill(num_tokens, 0))


def decodes(count: int, context: int) -> float:
    return A100_LLAMA3_8B.time_s(
        StepFeatures(num_tokens=count, num_decodes=count, decode_context=count * context)
    )


def test_the_named_model_has_the_figures_of_its_source() -> None:
    """`algorithms.md` §5.2: 35.7, 56.6 and 201 ms alone; a decode's margin is 0.095 ms."""
    assert prefill(256) == pytest.approx(0.0357, abs=1e-4)
    assert prefill(512) == pytest.approx(0.0566, abs=2e-4)
    assert prefill(2048) == pytest.approx(0.201, abs=5e-4)
    assert decodes(64, 1000) == pytest.approx(0.0283, abs=3e-4)
    margin = decodes(65, 0) - decodes(64, 0)
    assert margin == pytest.approx(0.095e-3, abs=1e-6)
    assert decodes(1, 1001) - decodes(1, 1) == pytest.approx(1000 * 0.111e-6)


def test_above_512_tokens_the_second_regime_holds_with_its_negative_decode_coefficient() -> None:
    many = StepFeatures(num_tokens=1024, num_decodes=256)
    fewer = StepFeatures(num_tokens=1024, num_decodes=0)
    assert 0 < A100_LLAMA3_8B.time_s(many) < A100_LLAMA3_8B.time_s(fewer)


def test_coefficients_are_given_as_numbers_or_by_a_file_of_one_or_several(tmp_path: Path) -> None:
    numbers = {"base_s": 0.01, "token_s": 0.001}
    step = NOTHING.plus_prefill(10, 0)
    assert cost_model(numbers).time_s(step) == pytest.approx(0.02)
    one = tmp_path / "one.json"
    one.write_text(json.dumps(numbers))
    assert cost_model(str(one)) == cost_model(numbers)
    two = tmp_path / "two.toml"
    two.write_text("[[regimes]]\nbase_s = 0.01\ntoken_s = 0.001\n[[regimes]]\nbase_s = 0.05\n")
    slowest = cost_model(str(two))
    assert slowest.time_s(step) == pytest.approx(0.05)
    assert slowest.time_s(NOTHING.plus_prefill(100, 0)) == pytest.approx(0.11)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing", "no model 'nothing'"),
        ("missing.json", "cannot be read"),
        ({"base_s": 0.1, "tokens": 1}, "cost_model.tokens: unknown key"),
        ({"token_s": 1}, "cost_model.base_s: must be given, and at least 0"),
        ({"base_s": -1}, "cost_model.base_s: must be given, and at least 0"),
        ({"base_s": 0.1, "token_s": float("nan")}, "cost_model.token_s: must be a finite"),
        ({"base_s": 10**400}, "cost_model.base_s: must be a finite number of at most 1e"),
    ],
)
def test_an_impossible_model_is_refused(source: str | dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cost_model(source)


@pytest.mark.parametrize("seconds", [0.0, -0.001, 1e7])
def test_a_step_of_no_possible_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"nodes.cost_model: a step of 0 decodes among 7 tokens"):
        cost_model({"base_s": 0.0, "token_s": seconds}).time_s(NOTHING.plus_prefill(7, 0))


def test_a_fit_may_find_that_a_step_costs_nothing_but_its_tokens() -> None:
    assert cost_model({"base_s": 0.0, "token_s": 0.001}).time_s(NOTHING.plus_decode(1)) == 0.001


@pytest.mark.parametrize("text", ["[]", "3", "{", '[{"base_s": 1}, 2]', "[" * 100_000])
def test_a_file_that_is_no_model_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.json"):
        cost_model(str(file))


def test_noise_has_mean_1_and_the_given_spread_and_spikes() -> None:
    noise = StepNoise(Random(7), 0.1, 0.0, 1.0)
    factors = [noise.next() for _ in range(20_000)]
    assert fmean(factors) == pytest.approx(1.0, abs=0.005)
    assert stdev(factors) == pytest.approx(0.1, abs=0.005)
    spiky = StepNoise(Random(7), 0.0, 0.01, 5.0)
    spikes = [spiky.next() for _ in range(20_000)].count(5.0)
    assert 140 < spikes < 260
    assert StepNoise(Random(7), 0.0, 0.0, 5.0).next() == 1.0
