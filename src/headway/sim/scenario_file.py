"""Is this scenario possible, and what is it with all defaults filled in?

An unknown or impossible key is refused by its path, as in the configuration. Paths of further files
are relative to the scenario's own.
"""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any, TypeGuard

from msgspec.structs import replace

from headway.config.decode import check_names, decode
from headway.config.load import override
from headway.config.schema import Section
from headway.config.tiers import build_tiers
from headway.errors import ConfigError
from headway.sim.consistency import check_consistency
from headway.sim.scenario import (
    ARRIVALS,
    EVENTS,
    LENGTHS,
    MOST,
    Arrivals,
    EmpiricalLength,
    GatewayOptions,
    Length,
    LognormalLength,
    NodesConfig,
    PrefixConfig,
    Scenario,
    ScenarioHead,
    StepsArrivals,
    StreamConfig,
    StreamHead,
    TenantConfig,
    TraceArrivals,
    UniformLength,
)

SECTIONS = ("nodes", "gateway", "tiers", "policy", "tenants", "streams", "events")
SUFFIX = ".toml"
_NOTHING: Mapping[str, object] = {}


def shipped_names() -> list[str]:
    """Return the names of the scenarios that come with headway."""
    folder = files("headway.sim") / "scenarios"
    found = (each.name for each in folder.iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))


def find_scenario(name: str) -> Path:
    """Return the file of a path or of a shipped scenario's name. Raises ConfigError."""
    if "/" in name or name.endswith(SUFFIX):
        return Path(name)
    shipped = Path(str(files("headway.sim") / "scenarios" / f"{name}{SUFFIX}"))
    if not shipped.is_file():
        known = ", ".join(shipped_names())
        raise ConfigError(name, f"no scenario of this name; there are {known}, or give a path")
    return shipped


def load_scenario(
    path: Path, overrides: Mapping[str, object] = _NOTHING, *, trace: Path | None = None
) -> Scenario:
    """Return the checked scenario of a TOML file.

    `overrides` maps dotted paths, as `nodes.count` or `streams.bulk.tier`, to values that win over
    the file. A `trace` is a CSV file that the first stream replays. Raises ConfigError by file,
    line or path.
    """
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"not valid TOML: {error}") from error
    try:
        if trace is not None:
            _replay(raw, trace.absolute())
        for key, value in overrides.items():
            _override(raw, key, value)
        return parse_scenario(raw, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path.name}: {error.path}", error.message) from error


def parse_scenario(raw: Mapping[str, Any], folder: Path) -> Scenario:
    """Return the checked scenario of plain values. Raises ConfigError by path."""
    _check_finite(raw, "")
    check_names(raw, (*ScenarioHead.__struct_fields__, *SECTIONS), "")
    own = {key: value for key, value in raw.items() if key not in SECTIONS}
    head = decode(own, ScenarioHead, "scenario")
    scenario = Scenario(
        name=head.name,
        shows=head.shows,
        duration_s=head.duration_s,
        warmup_s=head.warmup_s,
        drain_s=head.drain_s,
        seed=head.seed,
        load=head.load,
        nodes=_nodes(raw.get("nodes"), folder),
        gateway=decode(raw.get("gateway"), GatewayOptions, "gateway"),
        tiers=build_tiers(raw.get("tiers")),
        policy=_policy(raw.get("policy")),
        tenants=tuple(
            decode(item, TenantConfig, f"tenants[{index}]")
            for index, item in enumerate(_items(raw.get("tenants"), "tenants"))
        ),
        streams=tuple(
            _stream(item, f"streams[{index}]", folder)
            for index, item in enumerate(_items(raw.get("streams"), "streams"))
        ),
        events=tuple(
            _one_of(item, EVENTS, f"events[{index}]")
            for index, item in enumerate(_items(raw.get("events"), "events"))
        ),
    )
    check_consistency(scenario)
    return scenario


def further_files(scenario: Scenario) -> list[Path]:
    """Return the files that the scenario reads beside its own: traces and a cost model."""
    names = []
    for stream in scenario.streams:
        if isinstance(stream.arrivals, TraceArrivals):
            names.append(stream.arrivals.file)
        lengths = (stream.prompt_tokens, stream.output_tokens)
        names += [each.trace for each in lengths if isinstance(each, EmpiricalLength)]
    if _is_file(scenario.nodes.cost_model):
        names.append(scenario.nodes.cost_model)
    return [Path(name) for name in names]


def _replay(raw: dict[str, Any], trace: Path) -> None:
    streams = raw.get("streams")
    if not isinstance(streams, list) or not streams or not isinstance(streams[0], dict):
        raise ConfigError("streams", "there is no first one, to replay the trace")
    streams[0]["arrivals"] = {"kind": "trace", "file": str(trace)}


def _override(raw: dict[str, Any], key: str, value: object) -> None:
    section, _, rest = key.partition(".")
    name, _, inner = rest.partition(".")
    if section not in ("streams", "tenants") or not inner:
        override(raw, key, value)
        return
    for item in _items(raw.get(section), section):
        if isinstance(item, dict) and item.get("name") == name:
            override(item, inner, value)
            return
    raise ConfigError(key, f"there is no {name!r} in {section}")


def _check_finite(value: object, at: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_finite(item, f"{at}.{key}" if at else key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_finite(item, f"{at}[{index}]")
    elif isinstance(value, float) and not isfinite(value):
        raise ConfigError(at, f"must be a finite number, got {value}")


def _items(value: object, at: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ConfigError(at, f"must be a list, as `[[{at}]]`")
    return list(value)


def _one_of(value: object, schemas: Mapping[str, type[Section]], at: str) -> Any:
    """Return the table `value` as the schema that its `kind` names."""
    if not isinstance(value, Mapping):
        raise ConfigError(at, f"must be a table with a kind, one of {', '.join(schemas)}")
    rest = dict(value)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str) or kind not in schemas:
        got = "is missing" if kind is None else f"is unknown: {kind!r}"
        raise ConfigError(f"{at}.kind", f"{got}; allowed: {', '.join(schemas)}")
    return decode(rest, schemas[kind], at)


def _nodes(value: object, folder: Path) -> NodesConfig:
    nodes = decode(value, NodesConfig, "nodes")
    model = nodes.cost_model
    return replace(nodes, cost_model=str(folder / model)) if _is_file(model) else nodes


def _is_file(cost_model: object) -> TypeGuard[str]:
    """Whether a cost model is given as the name of a file."""
    return isinstance(cost_model, str) and cost_model.endswith((".json", ".toml"))


def _policy(value: object) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError("policy", "must be a table of numbers")
    for key, item in value.items():
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise ConfigError(f"policy.{key}", f"must be a number, got {item!r}")
        if not abs(item) <= MOST:
            raise ConfigError(f"policy.{key}", f"must be at most {MOST:g}")
    return {key: float(item) for key, item in value.items()}


def _stream(value: object, at: str, folder: Path) -> StreamConfig:
    if not isinstance(value, Mapping):
        raise ConfigError(at, "must be a table")
    check_names(value, StreamConfig.__struct_fields__, at)
    known = StreamHead.__struct_fields__
    head = decode({key: value[key] for key in value if key in known}, StreamHead, at)
    parts: dict[str, Any] = {"arrivals": _arrivals(value.get("arrivals"), f"{at}.arrivals", folder)}
    for key in ("prompt_tokens", "output_tokens"):
        if key in value:
            parts[key] = _length(value[key], f"{at}.{key}", folder)
    if "prefix" in value:
        parts["prefix"] = decode(value["prefix"], PrefixConfig, f"{at}.prefix")
    return StreamConfig(**{key: getattr(head, key) for key in known}, **parts)


def _arrivals(value: object, at: str, folder: Path) -> Arrivals:
    arrivals: Arrivals = _one_of(value, ARRIVALS, at)
    if isinstance(arrivals, TraceArrivals):
        return replace(arrivals, file=str(folder / arrivals.file))
    if isinstance(arrivals, StepsArrivals):
        times = [time for time, _ in arrivals.rates]
        if times != sorted(set(times)):
            raise ConfigError(f"{at}.rates", "times must rise")
    return arrivals


def _length(value: object, at: str, folder: Path) -> Length:
    """Return the distribution; a bare number is a fixed length."""
    if isinstance(value, int):
        value = {"kind": "fixed", "tokens": value}
    length: Length = _one_of(value, LENGTHS, at)
    if isinstance(length, EmpiricalLength):
        return replace(length, trace=str(folder / length.trace))
    if isinstance(length, UniformLength) and length.low > length.high:
        raise ConfigError(at, f"low {length.low} is above high {length.high}")
    if isinstance(length, LognormalLength):
        _check_lognormal(length, at)
    return length


def _check_lognormal(length: LognormalLength, at: str) -> None:
    if (length.mean is None) == (length.p99 is None):
        raise ConfigError(at, "needs p50 and one of mean and p99")
    upper = length.mean if length.p99 is None else length.p99
    if upper is not None and upper < length.p50:
        raise ConfigError(at, f"mean and p99 are at least p50, got {upper:g} and {length.p50:g}")
    if length.high < length.low:
        raise ConfigError(at, f"low {length.low} is above high {length.high}")
