"""Is every impossible configuration refused by its path, with what is allowed?"""

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import load_config
from headway.config.load import is_loopback, parse_config
from headway.errors import ConfigError

KEY = {"key": "k1", "tenant": "t"}
NODE = {"name": "n", "url": "http://h:1"}

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"gatway": {}}, "gatway", "did you mean 'gateway'"),
    ({"gateway": {"prot": 1}}, "gateway.prot", "did you mean 'port'? allowed: host, port"),
    ({"gateway": []}, "gateway", "must be a mapping"),
    ({"gateway": {"port": "x"}}, "gateway.port", "expected int, got str"),
    ({"gateway": {"port": True}}, "gateway.port", "expected int, got bool"),
    ({"gateway": {"port": 65536}}, "gateway.port", "<= 65535"),
    ({"gateway": {"port": -1}}, "gateway.port", ">= 0"),
    ({"gateway": {"port": None}}, "gateway.port", "expected int, got null"),
    ({"gateway": {"policy": "lifo"}}, "gateway.policy", "allowed: qos, fcfs"),
    ({"gateway": {"drain_s": -1}}, "gateway.drain_s", ">= 0"),
    ({"gateway": {"heartbeat_s": 0}}, "gateway.heartbeat_s", "> 0"),
    ({"gateway": {"host": ""}}, "gateway.host", "length >= 1"),
    ({"gateway": {"host": "0.0.0.0"}}, "gateway.host", "allowed without keys: 127.0.0.1"),
    ({"gateway": {"max_body_bytes": 2**30}}, "engine.max_body_bytes", "at least"),
    ({"engine": {"dtype": "int4"}}, "engine.dtype", "allowed: auto, bfloat16, float32"),
    ({"engine": {"max_num_seqs": 0}}, "engine.max_num_seqs", ">= 1"),
    ({"engine": {"max_num_seqs": 600}}, "engine.max_num_batched_tokens", "engine.max_num_seqs"),
    (
        {"engine": {"num_kv_blocks": 9, "kv_cache_bytes": 4096}},
        "engine.kv_cache_bytes",
        "contradicts engine.num_kv_blocks",
    ),
    ({"tiers": 3}, "tiers", "a mapping by tier name, or a list"),
    ({"tiers": {"bluk": {}}}, "tiers.bluk", "did you mean 'bulk'"),
    ({"tiers": {"bulk": {"flor": 0}}}, "tiers.bulk.flor", "did you mean 'floor'"),
    ({"tiers": {"bulk": {"floor": 1}}}, "tiers.bulk.floor", "< 1"),
    ({"tiers": {"bulk": {"floor": 0.9}}}, "tiers", "floors add up"),
    ({"tiers": {"bulk": {"reserve": 0.9}}}, "tiers", "reserves add up"),
    ({"tiers": {"bulk": {"aliases": ["high"]}}}, "tiers[2].name", "named twice"),
    ({"tiers": {"bulk": {"aliases": ["auto"]}}}, "tiers[2]", "'auto'"),
    ({"tiers": {"bulk": {"aliases": ["Low"]}}}, "tiers.bulk.aliases[0]", "matching regex"),
    ({"tiers": [{"name": "one"}]}, "tiers", "2 to 4 tiers, got 1"),
    ({"tiers": [{"name": f"t{i}"} for i in range(5)]}, "tiers", "2 to 4 tiers, got 5"),
    ({"tiers": [{"name": "a"}, {"floor": 0}]}, "tiers[1]", "missing required field name"),
    ({"keys": KEY}, "keys", "must be a list"),
    ({"keys": ["k1"]}, "keys[0]", "must be a mapping"),
    ({"keys": [{"key": "k1"}]}, "keys[0]", "missing required field tenant"),
    ({"keys": [{**KEY, "key": 12}]}, "keys[0].key", "expected str, got int"),
    ({"keys": [{**KEY, "key": "a b"}]}, "keys[0].key", "without spaces"),
    ({"keys": [{**KEY, "key": "env:NOPE"}]}, "keys[0].key", "'NOPE' is not set"),
    ({"keys": [{**KEY, "key": "env:EMPTY"}]}, "keys[0].key (from EMPTY)", "not empty"),
    ({"keys": [KEY, KEY]}, "keys[1].key", "the same secret as keys[0].key"),
    ({"keys": [{**KEY, "weight": 0}]}, "keys[0].weight", ">= 0.001"),
    ({"keys": [{**KEY, "weight": 1001}]}, "keys[0].weight", "<= 1000"),
    ({"keys": [{**KEY, "highest_tier": "top"}]}, "keys[0].highest_tier", "allowed: critical"),
    ({"keys": [{**KEY, "default_tier": "critical"}]}, "keys[0].default_tier", "more urgent"),
    ({"nodes": [{"name": "n"}]}, "nodes[0]", "missing required field url"),
    ({"nodes": [{**NODE, "name": "a b"}]}, "nodes[0].name", "matching regex"),
    ({"nodes": [{**NODE, "url": "h:1"}]}, "nodes[0].url", "http or https"),
    ({"nodes": [{**NODE, "url": "ftp://h"}]}, "nodes[0].url", "http or https"),
    ({"nodes": [{**NODE, "url": "http://h:99999"}]}, "nodes[0].url", "not a URL"),
    ({"nodes": [{**NODE, "url": "http://h?x=1"}]}, "nodes[0].url", "no user, query"),
    ({"nodes": [{**NODE, "url": "http://h/v1/"}]}, "nodes[0].url", "leave out /v1"),
    ({"nodes": [NODE, {**NODE, "url": "http://h:2"}]}, "nodes[1].name", "nodes[0].name"),
    ({"nodes": [NODE, {**NODE, "name": "m"}]}, "nodes[1].url", "nodes[0].url"),
    ({"nodes": [{**NODE, "max_inflight": 0}]}, "nodes[0].max_inflight", ">= 1"),
]


@pytest.mark.parametrize(("raw", "path", "reason"), REFUSED)
def test_impossible_settings_are_refused_by_path(
    raw: dict[str, Any], path: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(raw, environ={"EMPTY": ""})
    assert refused.value.path == path
    assert reason in refused.value.message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "port", "key", "url", "floor"]), inner)
        ),
        max_leaves=5,
    ),
    st.sampled_from(["gateway", "engine", "tiers", "keys", "nodes"]),
)
def test_no_value_of_a_section_escapes_as_another_error(value: object, section: str) -> None:
    refused: ConfigError | None = None
    try:
        parse_config({section: value}, environ={})
    except ConfigError as error:
        refused = error
    assert refused is None or refused.path.startswith(section)


def test_defaults_are_open_on_loopback() -> None:
    config = load_config(None)
    assert config.open_mode
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8000)
    assert config.nodes == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_hosts_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example"])
def test_other_hosts_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_empty_sections_and_an_empty_file_are_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "headway.yaml"
    file.write_text("gateway:\nengine:\ntiers:\nkeys:\nnodes:\n")
    assert load_config(file) == load_config(None)
    file.write_text("# nothing yet\n")
    assert load_config(file) == load_config(None)


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("gateway:\n  port: 1\n  port: 2\n", ", line 3", "'port' is already given in line 2"),
        ("gateway: {port: 1\n", ", line 2", ""),
        ("- a\n", "", "must be a mapping of sections"),
        ("gateway:\n  1: x\n", None, "the key 1 must be text"),
        ("gateway:\n  drain_s: .inf\n", None, "must be a finite number"),
        ("gateway:\n  drain_s: .nan\n", None, "must be a finite number"),
        ("gateway: !!python/object:os.system {}\n", ", line 1", "could not determine"),
    ],
)
def test_broken_files_are_refused_by_line(
    tmp_path: Path, text: str, path: str | None, reason: str
) -> None:
    file = tmp_path / "headway.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert reason in refused.value.message
    if path is not None:
        assert refused.value.path == f"{file}{path}"


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "missing.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"gateway: {host: \xe9}")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "latin.yaml")


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "headway.yaml"
    file.write_text("gateway: {port: 1, drain_s: 4}\ntiers: {bulk: {floor: 0.1}}\n")
    config = load_config(
        file, {"gateway.port": 2, "tiers.bulk.reserve": 0.01, "engine.threads": 1, "nodes": [NODE]}
    )
    assert (config.gateway.port, config.gateway.drain_s) == (2, 4)
    assert (config.tiers.all[2].floor, config.tiers.all[2].reserve) == (0.1, 0.01)
    assert config.engine.threads == 1
    assert config.nodes[0].url == "http://h:1"


def test_override_of_an_unknown_or_unreachable_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gateway\.prot: unknown key"):
        load_config(None, {"gateway.prot": 2})
    file = tmp_path / "headway.yaml"
    file.write_text("tiers: [{name: a}, {name: b}]\n")
    with pytest.raises(ConfigError, match="`tiers` is a list"):
        load_config(file, {"tiers.bulk.floor": 0.1})


def test_a_tier_mapping_adjusts_the_defaults() -> None:
    tiers = parse_config(
        {"tiers": {"critical": {"ttft_s": 0.1}, "bulk": {"queue_timeout_s": 9}}}, environ={}
    ).tiers
    assert [tier.name for tier in tiers.all] == ["critical", "normal", "bulk"]
    critical, _, bulk = tiers.all
    assert (critical.target.ttft_s, critical.target.gap_s) == (0.1, 0.2)
    assert (bulk.queue_timeout_s, bulk.floor, bulk.aliases) == (9, 0.05, ("low",))


def test_a_tier_list_is_the_whole_set_and_takes_defaults_by_name() -> None:
    tiers = parse_config(
        {"tiers": [{"name": "urgent", "queue_timeout_s": None}, {"name": "bulk", "floor": 0.2}]},
        environ={},
    ).tiers
    urgent, bulk = tiers.all
    assert (urgent.rank, urgent.queue_timeout_s, urgent.service_tier) == (0, None, "urgent")
    assert (bulk.rank, bulk.floor, bulk.service_tiers) == (1, 0.2, ("flex",))


def test_tiers_of_a_key_default_to_the_second_or_lower() -> None:
    def tiers_of(raw: dict[str, Any]) -> tuple[str, str]:
        key = parse_config(raw, environ={}).keys[0]
        return key.highest_tier, key.default_tier

    assert tiers_of({"keys": [KEY]}) == ("normal", "normal")
    assert tiers_of({"keys": [{**KEY, "highest_tier": "critical"}]}) == ("critical", "normal")
    assert tiers_of({"keys": [{**KEY, "highest_tier": "bulk"}]}) == ("bulk", "bulk")
    own = [{"name": "a"}, {"name": "b"}]
    assert tiers_of({"keys": [KEY], "tiers": own}) == ("b", "b")


def test_keys_are_read_from_the_environment_and_open_other_hosts() -> None:
    raw = {"keys": [{**KEY, "key": "env:SECRET"}], "gateway": {"host": "0.0.0.0"}}
    config = parse_config(raw, environ={"SECRET": "sk-1"})
    assert config.keys[0].key == "sk-1"
    assert not config.open_mode


def test_node_urls_lose_their_final_slash() -> None:
    config = parse_config({"nodes": [{**NODE, "url": "https://h/base/"}]}, environ={})
    assert config.nodes[0].url == "https://h/base"


def test_least_efficiency_is_at_most_the_usual_one() -> None:
    with pytest.raises(ConfigError, match=r"engine\.min_efficiency: must not be above"):
        load_config(None, {"engine.efficiency": 0.5})
    config = load_config(None, {"engine.efficiency": 0.5, "engine.min_efficiency": 0.4})
    assert config.engine.efficiency == 0.5
    with pytest.raises(ConfigError, match=r"engine\.efficiency"):
        load_config(None, {"engine.efficiency": 1.0})


def test_an_error_comes_back_whole_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("tiers[1].floor", "must be below 1")))
    assert (str(error), error.path) == ("tiers[1].floor: must be below 1", "tiers[1].floor")
