"""Is this configuration possible, and what is it with all defaults filled in?

An unknown or impossible key is refused by its path, with what is allowed; nothing is corrected
silently and nothing half-loaded is returned.
"""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headway.config.decode import check_names, decode
from headway.config.schema import Config, EngineConfig, GatewayConfig, KeyConfig, NodeConfig
from headway.config.source import read_yaml
from headway.config.tiers import build_tiers
from headway.core.tier import Tiers
from headway.errors import ConfigError

SECTIONS = ("gateway", "engine", "tiers", "keys", "nodes")
_NOTHING: Mapping[str, object] = {}


def load_config(
    path: Path | None,
    overrides: Mapping[str, object] = _NOTHING,
    *,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """Return the checked configuration of a YAML file, or the defaults when `path` is None.

    `overrides` maps dotted paths, as `gateway.port`, or whole sections, as `nodes`, to values that
    win over the file. `environ` resolves `env:NAME` keys. Raises ConfigError by path.
    """
    raw = {} if path is None else read_yaml(path)
    for key, value in overrides.items():
        override(raw, key, value)
    return parse_config(raw, environ=environ)


def parse_config(raw: Mapping[str, Any], *, environ: Mapping[str, str]) -> Config:
    """Return the checked configuration of plain values. Raises ConfigError by path."""
    check_names(raw, SECTIONS, "")
    tiers = build_tiers(raw.get("tiers"))
    config = Config(
        gateway=decode(raw.get("gateway"), GatewayConfig, "gateway"),
        engine=decode(raw.get("engine"), EngineConfig, "engine"),
        tiers=tiers,
        keys=_keys(raw.get("keys"), tiers, environ),
        nodes=_nodes(raw.get("nodes")),
    )
    _check_open_mode(config)
    _check_engine(config)
    return config


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def override(raw: dict[str, Any], key: str, value: object) -> None:
    """Set what a dotted path means, as `gateway.port`. Raises ConfigError at what is no table."""
    section, _, name = key.partition(".")
    if not name:
        raw[section] = value
        return
    current = raw.get(section)
    if current is None:
        current = {}
    if not isinstance(current, dict):
        kind = "a list in the file" if isinstance(current, list) else "no table"
        raise ConfigError(key, f"cannot be set: `{section}` is {kind}")
    if "." in name:
        current = dict(current)
        override(current, name, value)
        raw[section] = current
    else:
        raw[section] = {**current, name: value}


def _items(value: object, at: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ConfigError(at, "must be a list")
    return list(value)


def _keys(value: object, tiers: Tiers, environ: Mapping[str, str]) -> tuple[KeyConfig, ...]:
    keys: list[KeyConfig] = []
    seen: dict[str, int] = {}
    for index, item in enumerate(_items(value, "keys")):
        at = f"keys[{index}]"
        decoded = decode(_with_tiers(item, tiers), KeyConfig, at)
        secret = _secret(decoded.key, f"{at}.key", environ)
        if secret in seen:
            raise ConfigError(f"{at}.key", f"the same secret as keys[{seen[secret]}].key")
        seen[secret] = index
        _check_key_tiers(decoded, at, tiers)
        keys.append(
            KeyConfig(
                key=secret,
                tenant=decoded.tenant,
                weight=decoded.weight,
                highest_tier=decoded.highest_tier,
                default_tier=decoded.default_tier,
                strict=decoded.strict,
            )
        )
    return tuple(keys)


def _with_tiers(item: object, tiers: Tiers) -> object:
    """Fill in the tiers that a key leaves out: the second one, and no default above the highest."""
    if not isinstance(item, dict):
        return item
    ordinary = tiers.by_rank(1)
    highest = tiers.by_name(str(item.get("highest_tier", ordinary.name)))
    lowest = ordinary if highest is None or highest.rank < ordinary.rank else highest
    return {"highest_tier": ordinary.name, "default_tier": lowest.name, **item}


def _check_key_tiers(key: KeyConfig, at: str, tiers: Tiers) -> None:
    names = [tier.name for tier in tiers.all]
    for field in ("highest_tier", "default_tier"):
        name = getattr(key, field)
        if name not in names:
            raise ConfigError(f"{at}.{field}", f"no tier {name!r}; allowed: {', '.join(names)}")
    if names.index(key.default_tier) < names.index(key.highest_tier):
        raise ConfigError(
            f"{at}.default_tier",
            f"{key.default_tier!r} is more urgent than highest_tier {key.highest_tier!r}",
        )


def _secret(value: str, at: str, environ: Mapping[str, str]) -> str:
    name = value.removeprefix("env:")
    secret = value
    if name != value:
        if name not in environ:
            raise ConfigError(at, f"the environment variable {name!r} is not set")
        secret = environ[name]
        at = f"{at} (from {name})"
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ConfigError(at, "must be printable ASCII without spaces, and not empty")
    return secret


def _nodes(value: object) -> tuple[NodeConfig, ...]:
    nodes: list[NodeConfig] = []
    for index, item in enumerate(_items(value, "nodes")):
        at = f"nodes[{index}]"
        node = decode(item, NodeConfig, at)
        url = _node_url(node.url, f"{at}.url")
        for other, known in enumerate(nodes):
            if known.name == node.name:
                raise ConfigError(f"{at}.name", f"the same as nodes[{other}].name")
            if known.url == url:
                raise ConfigError(f"{at}.url", f"the same as nodes[{other}].url")
        nodes.append(NodeConfig(name=node.name, url=url, max_inflight=node.max_inflight))
    return tuple(nodes)


def _node_url(value: str, at: str) -> str:
    """Return `value` without a final slash. Raises ConfigError when it is no server's root."""
    example = "as http://10.0.0.5:8001"
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError as error:
        raise ConfigError(at, f"not a URL ({error}); {example}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(at, f"must be an http or https URL, {example}")
    if parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(at, f"must have no user, query or fragment, {example}")
    trimmed = value.rstrip("/")
    if trimmed.endswith("/v1"):
        raise ConfigError(at, "leave out /v1: the path of each call is added to it")
    return trimmed


def _check_open_mode(config: Config) -> None:
    host = config.gateway.host
    if config.open_mode and not is_loopback(host):
        raise ConfigError(
            "gateway.host",
            f"{host!r} is reachable from other machines, which needs at least one entry in `keys`; "
            "allowed without keys: 127.0.0.1, ::1, localhost",
        )


def _check_engine(config: Config) -> None:
    engine = config.engine
    if engine.num_kv_blocks is not None and engine.kv_cache_bytes is not None:
        raise ConfigError("engine.kv_cache_bytes", "contradicts engine.num_kv_blocks; set one")
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise ConfigError(
            "engine.max_num_batched_tokens",
            f"must be at least engine.max_num_seqs, {engine.max_num_seqs}: one token for each",
        )
    if engine.min_efficiency > engine.efficiency:
        text = f"must not be above engine.efficiency, {engine.efficiency:g}"
        raise ConfigError("engine.min_efficiency", text)
    if not config.nodes and engine.max_body_bytes < config.gateway.max_body_bytes:
        raise ConfigError(
            "engine.max_body_bytes",
            f"must be at least gateway.max_body_bytes, {config.gateway.max_body_bytes}",
        )
