"""Scenarios small enough to run in a test."""

from pathlib import Path
from typing import Any

from headway.sim.scenario import Scenario
from headway.sim.scenario_file import find_scenario, load_scenario, parse_scenario

BASE: dict[str, Any] = {
    "name": "small",
    "duration_s": 10,
    "nodes": {"max_num_seqs": 16, "num_blocks": 512, "max_num_batched_tokens": 512},
}
CRITICAL: dict[str, Any] = {
    "name": "critical",
    "tier": "critical",
    "arrivals": {"kind": "poisson", "rate": 2},
    "prompt_tokens": 100,
    "output_tokens": {"kind": "uniform", "low": 1, "high": 30},
}
BULK: dict[str, Any] = {
    "name": "bulk",
    "tier": "bulk",
    "arrivals": {"kind": "backlog", "count": 60},
    "num_tenants": 3,
    "prompt_tokens": {"kind": "lognormal", "p50": 150, "p99": 600, "high": 900},
    "output_tokens": {"kind": "lognormal", "p50": 40, "mean": 60, "high": 200},
}


def scenario(*streams: dict[str, Any], **keys: Any) -> Scenario:
    """Return a scenario of these streams; `keys` win over `BASE`."""
    chosen = streams if streams else (CRITICAL, BULK)
    return parse_scenario({**BASE, "streams": list(chosen), **keys}, Path())


def shipped(name: str, **overrides: object) -> Scenario:
    """Return a shipped scenario; `__` in a key stands for a dot."""
    values = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_scenario(find_scenario(name), values)
