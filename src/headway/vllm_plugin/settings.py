"""What can be set of the scheduler inside vLLM?

vLLM hands plugins their settings in `--additional-config`; ours are under the key `headway`:
`--additional-config '{"headway": {"tiers": {"bulk": {"floor": 0.1}}}}'`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from headway.core.tier import Tier, Tiers
from headway.errors import ConfigError

KEY = "headway"
SHARES = ("floor", "reserve")
TARGETS = ("ttft_s", "tpot_s", "gap_s")


@dataclass(frozen=True, slots=True)
class Settings:
    """The scheduler's settings. Raises ConfigError, naming the one that is wrong."""

    tiers: Tiers = field(default_factory=Tiers)
    max_preemptions: int = 3
    """A request preempted this often is then protected until it ends."""
    efficiency: float = 0.72
    """Least tokens per second, over those of a full step, that the tightest target must leave;
    where it does not, all targets are stretched. Higher: more throughput, longer gaps."""
    min_efficiency: float = 0.6
    """The same of a step whose critical tokens are late already, or that computes a critical
    prompt."""
    ttft_share: float = 0.25
    """Share of a TTFT target that an arrival may spend waiting for the step under way."""

    def __post_init__(self) -> None:
        """Refuse what could not be scheduled."""
        number = self.max_preemptions
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigError(f"{KEY}.max_preemptions", f"an integer of at least 1, got {number!r}")
        for name in ("efficiency", "min_efficiency", "ttft_share"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < 1:
                raise ConfigError(f"{KEY}.{name}", f"a share between 0 and 1, got {value!r}")
        if self.min_efficiency > self.efficiency:
            raise ConfigError(f"{KEY}.min_efficiency", "must not be above efficiency")


def read_settings(additional_config: object) -> Settings:
    """Return the settings in vLLM's `additional_config`; defaults where it says nothing."""
    given = additional_config.get(KEY, {}) if isinstance(additional_config, Mapping) else {}
    if not isinstance(given, Mapping):
        raise ConfigError(KEY, f"must be an object, got {given!r}")
    _check_names(KEY, given, [option.name for option in fields(Settings)])
    changes = dict(given)
    changes["tiers"] = _tiers(given.get("tiers", {}))
    return Settings(**changes)


def _tiers(given: object) -> Tiers:
    path = f"{KEY}.tiers"
    if not isinstance(given, Mapping):
        raise ConfigError(path, f"must be an object by tier name, got {given!r}")
    defaults = Tiers()
    _check_names(path, given, [tier.name for tier in defaults.all])
    return Tiers(
        tuple(_changed(tier, given.get(tier.name, {}), path) for tier in defaults.all),
    )


def _changed(tier: Tier, given: object, path: str) -> Tier:
    path = f"{path}.{tier.name}"
    if not isinstance(given, Mapping):
        raise ConfigError(path, f"must be an object, got {given!r}")
    _check_names(path, given, [*SHARES, *TARGETS, "preemptible"])
    for name in SHARES:
        if name in given and not _is_number(given[name]):
            raise ConfigError(f"{path}.{name}", f"must be a number, got {given[name]!r}")
    for name in TARGETS:
        value = given.get(name)
        if value is not None and not (_is_number(value) and value > 0):
            raise ConfigError(f"{path}.{name}", f"must be seconds above 0, or null, got {value!r}")
    if not isinstance(given.get("preemptible", True), bool):
        raise ConfigError(f"{path}.preemptible", "must be true or false")
    target = replace(tier.target, **{name: given[name] for name in TARGETS if name in given})
    others: dict[str, Any] = {name: value for name, value in given.items() if name not in TARGETS}
    return replace(tier, target=target, **others)


def _check_names(path: str, given: Mapping[Any, Any], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"{path}.{name}", f"unknown; there are {', '.join(known)}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Compared: an integer of any length can be, but not made a float.
    return -sys.float_info.max <= value <= sys.float_info.max
