"""Is a real vLLM still consistent after some steps of random load? `fuzz.py` runs for longer."""

from typing import Any

import pytest

from tests_vllm.child import result_of


@pytest.mark.parametrize(
    "how",
    [{"seed": 1}, {"seed": 2, "caching": False}, {"seed": 3, "drafts": True}],
    ids=["prefix cache", "no prefix cache", "n-gram drafts"],
)
def test_whatever_arrives_and_leaves(model: str, how: dict[str, Any]) -> None:
    happened = result_of("tests_vllm.fuzz", {"steps": 150, **how}, timeout_s=600.0)
    for what in ("answered", "aborts", "preemptions"):
        assert happened[what] > 0, f"no {what}, so nothing is shown"
    if "drafts" in how:
        assert 0 < happened["num_accepted"] < happened["num_drafted"]
