"""Is a scenario that is wrong as a whole refused before it runs?"""

from pathlib import Path
from typing import Any

import pytest

from headway.core.limits import MOST_SLOTS
from headway.errors import ConfigError
from tests.sim.small import BASE, BULK, CRITICAL, scenario

HEADER = "arrival_s,prompt_tokens,output_tokens,tenant,tier\n"


def replaying(folder: Path, rows: str, **keys: Any) -> dict[str, Any]:
    """Return a stream that replays these rows."""
    file = folder / "trace.csv"
    file.write_text(HEADER + rows)
    return {**CRITICAL, "arrivals": {"kind": "trace", "file": str(file)}, **keys}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["bulk-0", "bulk-0"], r"tenants\[1\].name: 'bulk-0' is already taken"),
        (["critical", "bulk-3"], r"tenants\[1\].name: no stream sends as 'bulk-3'; there are "),
        (["bulk"], "'bulk'; there are critical, bulk-0 to bulk-2"),
        (["bulk-00"], "no stream sends as 'bulk-00'"),
        (["critical-0"], "no stream sends as 'critical-0'"),
        (["bulk-x"], "no stream sends as 'bulk-x'"),
    ],
)
def test_a_tenant_is_told_once_and_sends_something(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scenario(tenants=[{"name": name} for name in names])


def test_tenants_are_known_by_streams_their_numbers_and_traces(tmp_path: Path) -> None:
    named = {**BULK, "name": "other", "tenant": "acme"}
    trace = replaying(tmp_path, "0,1,1,ann,\n", name="trace")
    names = ("critical", "bulk-2", "acme-0", "ann", "trace")
    made = scenario(CRITICAL, BULK, named, trace, tenants=[{"name": name} for name in names])
    assert [tenant.name for tenant in made.tenants] == list(names)
    with pytest.raises(ConfigError, match=r"there are critical, trace, those in .*trace\.csv"):
        scenario(CRITICAL, trace, tenants=[{"name": "bob"}])


def test_a_row_of_an_unknown_tier_is_refused_by_its_line(tmp_path: Path) -> None:
    rows = "0,1,1,,critical\n# pause\n1,1,1,,\n900,1,1,,gold\n"
    with pytest.raises(ConfigError, match=r"trace\.csv, line 5: no tier 'gold'; allowed: critical"):
        scenario(replaying(tmp_path, rows))


@pytest.mark.parametrize("file", ["missing.csv", "null\0byte.csv"])
def test_a_trace_that_is_not_there_is_refused(file: str) -> None:
    with pytest.raises(ConfigError, match=r"\.csv: "):
        scenario({**CRITICAL, "arrivals": {"kind": "trace", "file": file}})
    with pytest.raises(ConfigError, match=r"\.csv: "):
        scenario({**CRITICAL, "prompt_tokens": {"kind": "empirical", "trace": file}})


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "poisson", "rate": 100_000_000},
        {"kind": "steps", "rates": [[0, 1e9], [1e-9, 1]]},
        {"kind": "diurnal", "mean_rate": 1e8},
        {"kind": "backlog", "count": 100_000_001},
    ],
)
def test_more_requests_than_a_run_can_hold_are_refused(arrivals: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"streams\[1\].arrivals: about .* 100,000,000 are the"):
        scenario(BULK, {**CRITICAL, "arrivals": arrivals})


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"chunksize": 5}, "policy.chunksize: unknown key; did you mean 'chunk_size'"),
        ({"share_gold": 0.5}, "policy.share_gold: unknown key; did you mean 'share_"),
        ({"chunk_size": 0}, "policy.chunk_size: must be a whole number of at least 1, got 0"),
        ({"chunk_size": 64.5}, "policy.chunk_size: must be a whole number of at least 1"),
        ({"share_bulk": 0}, "policy.share_bulk: must be above 0, got 0"),
        ({"share_bulk": 0.9}, r"policy: .* \+ share_bulk must be at most 1, got 1.6"),
    ],
)
def test_a_number_that_no_policy_can_use_is_refused(knobs: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scenario(policy=knobs)


def test_a_file_for_several_policies_has_the_numbers_of_each() -> None:
    knobs = {"chunk_size": 64, "share_bulk": 0.1}
    assert scenario(policy=knobs).policy == knobs


@pytest.mark.parametrize(
    "model",
    [
        {"base_s": 0.01, "token_s": -0.01},
        {"base_s": 0.01, "decode_s": -1.0},
        {"base_s": 0.01, "prefill_work_s": -1.0},
        {"base_s": 0.0},
        {"base_s": 1e9},
    ],
)
def test_steps_that_take_no_time_are_refused(model: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"nodes.cost_model: a step of . decodes among"):
        scenario(nodes={"cost_model": model})


def down(at_s: float, until_s: float | None, node: int = 0) -> dict[str, Any]:
    event = {"kind": "node-down", "node": node, "at_s": at_s}
    return event if until_s is None else {**event, "until_s": until_s}


def test_a_node_that_is_down_does_not_go_down() -> None:
    nodes = {"count": 2}
    scenario(nodes=nodes, events=[down(1, 2), down(2, None), down(0, None, node=1)])
    scenario(events=[down(5, None), down(1, 5)])
    for second in (down(1.5, 3), down(0, None), down(0.5, 1.5)):
        with pytest.raises(ConfigError, match=r"events\[1\].at_s: events\[0\] does the same to"):
            scenario(events=[down(1, 2), second])


def test_a_first_limit_above_the_ceiling_is_refused() -> None:
    nodes = {**BASE["nodes"], "max_inflight": 4}
    scenario(nodes={**nodes, "first_limit": 4})
    with pytest.raises(ConfigError, match=r"nodes.first_limit: must be at most max_inflight, 4"):
        scenario(nodes={**nodes, "first_limit": 5})
    scenario(nodes={**BASE["nodes"], "first_limit": MOST_SLOTS})
    with pytest.raises(ConfigError, match=r"nodes.first_limit: must be at most 4096: none learns"):
        scenario(nodes={**BASE["nodes"], "first_limit": MOST_SLOTS + 1})
