"""Are answers those of the stock scheduler, whatever was preempted, parked or drafted?

G8: greedy, in float32, because in bf16 a token may depend on what else is in the batch.
"""

import json
from functools import cache
from typing import Any

import pytest

from tests_vllm.child import result_of


@cache
def generated(how: str) -> dict[str, Any]:
    """Return what a vLLM of its own process generates (`generate.py`)."""
    return result_of("tests_vllm.generate", json.loads(how))


def stock() -> dict[str, Any]:
    return generated(json.dumps({}))


@pytest.mark.parametrize(
    "how",
    [{"caching": True}, {"caching": False}, {"drafts": True}],
    ids=["prefix cache", "no prefix cache", "n-gram drafts"],
)
def test_tokens_are_those_of_the_stock_scheduler(model: str, how: dict[str, Any]) -> None:
    ours = generated(json.dumps({"ours": True, **how}))
    assert ours["tokens"] == stock()["tokens"]
    assert ours["num_preemptions"] > 0, "nothing was preempted, so nothing is shown"
    if "drafts" in how:
        assert 0 < ours["num_accepted"] < ours["num_drafted"], "too few drafts to show anything"
    else:
        assert ours["num_drafted"] == 0


def test_critical_overtakes_as_it_does_not_with_stock(model: str) -> None:
    """All of critical has ended before any of the bulk that came first; the control is stock."""

    def overtakes(ended: list[str]) -> bool:
        first_bulk = min(ended.index(name) for name in ended if name.startswith("bulk"))
        return all(ended.index(n) < first_bulk for n in ended if n.startswith("critical"))

    assert overtakes(generated(json.dumps({"ours": True, "caching": True}))["ended"])
    assert not overtakes(stock()["ended"])
