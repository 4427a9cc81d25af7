"""Is an impossible scenario refused by the path of what is wrong?"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from headway.errors import ConfigError
from headway.sim.scenario import ClosedArrivals, FixedLength, NodeDown, TraceArrivals
from headway.sim.scenario_file import find_scenario, load_scenario, parse_scenario, shipped_names
from tests.sim.small import BASE, BULK, CRITICAL, scenario

GOOD: dict[str, Any] = {
    **BASE,
    "streams": [CRITICAL, BULK],
    "tenants": [{"name": "bulk-0", "weight": 2}],
    "events": [{"kind": "node-down", "node": 0, "at_s": 1, "until_s": 2}],
    "tiers": {"normal": {"floor": 0.2}},
    "policy": {"chunk_size": 64},
    "gateway": {"output_guess_factor": 2},
}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return `GOOD` with what a dotted path means set; `None` takes it away."""
    raw = deepcopy(GOOD)
    *parents, last = path.split(".")
    at: Any = raw
    for part in parents:
        at = at[_key(part)]
    if value is None:
        del at[_key(last)]
    else:
        at[_key(last)] = value
    return raw


def _key(part: str) -> str | int:
    return int(part) if part.isdigit() else part


def test_what_a_file_says_is_what_is_read() -> None:
    read = parse_scenario(GOOD, Path())
    assert read.streams[0].prompt_tokens == FixedLength(tokens=100)
    assert read.tenants[0].weight == 2
    assert read.events == (NodeDown(node=0, at_s=1, until_s=2),)
    assert read.tiers.by_rank(1).floor == 0.2
    assert read.nodes.max_num_seqs == 16
    assert read.policy == {"chunk_size": 64.0}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("duration", 3, "duration: unknown key; did you mean 'duration_s'"),
        ("duration_s", None, "scenario: .*duration_s"),
        ("duration_s", -1, "scenario.duration_s: "),
        ("warmup_s", 10, "warmup_s: must be below duration_s"),
        ("duration_s", 9.5, "duration_s: must be whole seconds"),
        ("warmup_s", 0.9, "warmup_s: must be whole seconds"),
        ("streams.1.cancel_after_s", 1e-9, r"streams\[1\].cancel_after_s: "),
        ("name", "a b", "scenario.name: "),
        ("streams", [], "streams: nobody sends anything"),
        ("streams", {"a": 1}, r"streams: must be a list, as `\[\[streams\]\]`"),
        ("streams.0", 3, r"streams\[0\]: must be a table"),
        ("streams.0.tier", "gold", r"streams\[0\].tier: no tier 'gold'; allowed: critical"),
        ("streams.0.rate", 3, r"streams\[0\].rate: unknown key"),
        ("streams.1.name", "critical", r"streams\[1\].name: 'critical' is already taken"),
        ("streams.0.arrivals", None, r"streams\[0\].arrivals: must be a table with a kind"),
        ("streams.0.arrivals.kind", "gauss", r"arrivals.kind: is unknown: 'gauss'; allowed"),
        ("streams.0.arrivals.kind", None, r"streams\[0\].arrivals.kind: is missing"),
        ("streams.0.arrivals.kind", ["poisson"], r"streams\[0\].arrivals.kind: is unknown: \['p"),
        ("streams.0.arrivals.rates", 3, r"streams\[0\].arrivals.rates: unknown key; did you"),
        ("streams.0.arrivals.rate", 0, r"streams\[0\].arrivals.rate: "),
        ("streams.0.arrivals.rate", float("inf"), r"arrivals.rate: must be a finite number"),
        ("streams.0.prompt_tokens", 0, r"streams\[0\].prompt_tokens.tokens: "),
        ("streams.0.output_tokens.high", 0, r"streams\[0\].output_tokens.high: "),
        ("streams.0.output_tokens.low", 50, r"output_tokens: low 50 is above high 30"),
        ("streams.1.prompt_tokens.mean", 200, "needs p50 and one of mean and p99"),
        ("streams.1.prompt_tokens.p99", 9, "mean and p99 are at least p50, got 9 and 150"),
        ("streams.1.prompt_tokens.low", 1000, "low 1000 is above high 900"),
        ("streams.0.end_s", 0.5, None),
        ("streams.0.start_s", 11, None),
        ("streams.0.arrivals", {"kind": "closed", "callers": 10**9}, r"arrivals.callers: expected"),
        ("streams.0.prefix", {"groups": 0, "tokens": 1}, r"streams\[0\].prefix.groups: "),
        ("streams.0.cancel_share", 1.5, r"streams\[0\].cancel_share: "),
        ("nodes.count", 0, "nodes.count: "),
        ("nodes.gpu", 1, "nodes.gpu: unknown key"),
        ("nodes.noise", "much", "nodes.noise: "),
        ("tiers.normal.floor", 1.5, "tiers.normal.floor: "),
        ("tiers.gold", {}, "tiers.gold: unknown key"),
        ("events.0.kind", "node-drowned", r"events\[0\].kind: is unknown"),
        ("events.0.node", 1, r"events\[0\].node: there are 1 nodes, from 0"),
        ("events.0.until_s", 0.5, r"events\[0\].until_s: must be above at_s, 1"),
        ("tenants.0.weight", 0, r"tenants\[0\].weight: "),
        ("tenants.0.weight", 1001, r"tenants\[0\].weight: "),
        ("policy.chunk_size", "x", "policy.chunk_size: must be a number"),
        pytest.param("policy.chunk_size", 10**400, "chunk_size: must be at most 1e", id="huge"),
        ("policy", 3, "policy: must be a table"),
        ("duration_s", 1e300, "scenario.duration_s: expected float <= 31536000"),
        ("duration_s", 1e-12, "scenario.duration_s: expected float >= 1e-09"),
        ("drain_s", 1e300, "scenario.drain_s: expected float <= 31536000"),
        ("seed", 2**63, "scenario.seed: "),
        ("load", 1e300, "scenario.load: "),
        ("nodes.count", 100_000_000, "nodes.count: expected int <= 10000"),
        ("nodes.num_blocks", 10**20, "nodes.num_blocks: expected int <= 1000000000"),
        ("nodes.noise", 1e6, "nodes.noise: expected float <= 3"),
        ("nodes.spike_factor", 1e300, "nodes.spike_factor: "),
        ("nodes.predictor_error", 1e308, "nodes.predictor_error: expected float <= 1000000"),
        ("nodes.predictor_error", 1e-300, "nodes.predictor_error: expected float >= 1e-06"),
        ("gateway.output_guess_sigma", 1e3, "gateway.output_guess_sigma: "),
        ("streams.0.arrivals.cv", 1e-200, r"streams\[0\].arrivals.cv: expected float >= 0.001"),
        ("streams.0.arrivals.cv", 1e200, r"streams\[0\].arrivals.cv: expected float <= 100"),
        ("streams.0.arrivals.rate", 1e-320, r"streams\[0\].arrivals.rate: expected float >= 1e-09"),
        ("streams.1.arrivals.count", 10**10, r"streams\[1\].arrivals.count: expected int <= "),
        ("streams.0.prompt_tokens", 10**10, r"streams\[0\].prompt_tokens.tokens: expected int <= "),
        (
            "streams.1.prompt_tokens.p99",
            1e300,
            r"streams\[1\].prompt_tokens.p99: expected float <= ",
        ),
        ("gateway.output_guess_factor", 0, "gateway.output_guess_factor: "),
    ],
)
def test_what_is_impossible_is_refused_by_its_path(
    path: str, value: object, message: str | None
) -> None:
    raw = changed(path, value)
    if message is None:
        parse_scenario(raw, Path())
        return
    with pytest.raises(ConfigError, match=message):
        parse_scenario(raw, Path())


def test_rates_of_steps_have_rising_times() -> None:
    steps = {"kind": "steps", "rates": [[0, 1], [5, 2], [5, 1]]}
    with pytest.raises(ConfigError, match=r"streams\[0\].arrivals.rates: times must rise"):
        scenario({**CRITICAL, "arrivals": steps})


def test_a_stream_may_not_end_before_it_starts() -> None:
    with pytest.raises(ConfigError, match=r"streams\[0\].end_s: must be above start_s, 5"):
        scenario({**CRITICAL, "start_s": 5, "end_s": 5})


def test_every_shipped_scenario_is_found_by_its_name_and_says_what_it_shows() -> None:
    names = shipped_names()
    assert {"bulk-flood", "floors", "adversarial"} <= set(names)
    for name in names:
        loaded = load_scenario(find_scenario(name))
        assert loaded.name == name
        assert loaded.shows.endswith(".")


def test_the_example_of_the_documentation_is_a_scenario(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(text.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    assert load_scenario(file).policy == {"chunk_size": 512.0, "share_bulk": 0.2}


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"bulk-flod: no scenario of this name; .*bulk-flood"):
        find_scenario("bulk-flod")


def test_overrides_reach_sections_and_streams_by_name() -> None:
    values = {"nodes.count": 3, "streams.bulk.arrivals.count": 5, "load": 2, "duration_s": 40}
    loaded = load_scenario(find_scenario("bulk-flood"), values)
    assert (loaded.nodes.count, loaded.load, loaded.duration_s) == (3, 2.0, 40.0)
    with pytest.raises(ConfigError, match=r"bulk-flood.toml: streams.none.tier: there is no"):
        load_scenario(find_scenario("bulk-flood"), {"streams.none.tier": "bulk"})


@pytest.mark.parametrize("streams", ["5", "[5]", '"x"'])
def test_a_key_of_a_stream_is_refused_where_there_is_no_list_of_streams(
    tmp_path: Path, streams: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\nduration_s = 1\nstreams = {streams}\n')
    with pytest.raises(ConfigError, match=r"mine.toml: streams"):
        load_scenario(file, {"streams.a.tier": "bulk"})


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    with pytest.raises(ConfigError, match=r"mine.toml: cannot be read"):
        load_scenario(file)
    file.write_text("name = ")
    with pytest.raises(ConfigError, match=r"mine.toml: not valid TOML: Invalid value"):
        load_scenario(file)
    file.write_text('name = "mine"\nduration_s = 0')
    with pytest.raises(ConfigError, match=r"mine.toml: scenario.duration_s: "):
        load_scenario(file)


def test_further_files_are_relative_to_the_scenario_and_a_trace_replaces_the_first_stream(
    tmp_path: Path,
) -> None:
    file, trace = tmp_path / "mine.toml", tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    (tmp_path / "cost.json").write_text('{"base_s": 0.01}')
    file.write_text(
        'name = "mine"\nduration_s = 5\n[nodes]\ncost_model = "cost.json"\n'
        '[[streams]]\nname = "s"\ntier = "bulk"\narrivals = {kind = "closed", callers = 2}\n'
        'prompt_tokens = {kind = "empirical", trace = "t.csv"}\n'
    )
    loaded = load_scenario(file)
    assert loaded.nodes.cost_model == str(tmp_path / "cost.json")
    assert loaded.streams[0].arrivals == ClosedArrivals(callers=2)
    replayed = load_scenario(file, {"streams.s.arrivals.rate_factor": 2}, trace=trace)
    assert replayed.streams[0].arrivals == TraceArrivals(file=str(trace), rate_factor=2.0)
