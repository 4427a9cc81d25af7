"""Which tiers does the `tiers` section mean?

A mapping by name adjusts the default tiers. A list is the whole set, most urgent first. In both,
what an entry leaves out comes from the default tier of the same name, if there is one.
"""

from dataclasses import fields, replace
from typing import Any

from msgspec import UNSET

from headway.config.decode import check_names, decode
from headway.config.schema import NamedTierConfig, TierConfig
from headway.core.tier import DEFAULT_TIERS, LatencyTarget, Tier, Tiers
from headway.errors import ConfigError

_TARGETS = tuple(field.name for field in fields(LatencyTarget))


def build_tiers(section: object) -> Tiers:
    """Return the tiers of the `tiers` section; None means the defaults. Raises ConfigError."""
    if section is None:
        return Tiers()
    if isinstance(section, dict):
        check_names(section, [tier.name for tier in DEFAULT_TIERS], "tiers")
        tiers = tuple(
            _merge(tier, decode(section.get(tier.name), TierConfig, f"tiers.{tier.name}"))
            for tier in DEFAULT_TIERS
        )
    elif isinstance(section, list | tuple):
        tiers = tuple(_entry(index, item) for index, item in enumerate(section))
    else:
        raise ConfigError("tiers", "must be a mapping by tier name, or a list of tiers")
    _check(tiers)
    return Tiers(tiers)


def _entry(index: int, item: object) -> Tier:
    config = decode(item, NamedTierConfig, f"tiers[{index}]")
    known = next((tier for tier in DEFAULT_TIERS if tier.name == config.name), None)
    base = Tier(name=config.name, rank=index) if known is None else replace(known, rank=index)
    return _merge(base, config)


def _merge(base: Tier, config: TierConfig) -> Tier:
    given: dict[str, Any] = {
        name: getattr(config, name)
        for name in TierConfig.__struct_fields__
        if getattr(config, name) is not UNSET
    }
    target = {name: given.pop(name) for name in _TARGETS if name in given}
    return replace(base, target=replace(base.target, **target), **given)


def _check(tiers: tuple[Tier, ...]) -> None:
    for index, tier in enumerate(tiers):
        if "auto" in (tier.name, *tier.aliases, *tier.service_tiers):
            raise ConfigError(f"tiers[{index}]", "'auto' asks for the key's default tier")
    if sum(tier.reserve for tier in tiers) >= 1:
        raise ConfigError("tiers", "the reserves add up to 1 or more; the last tier gets nothing")
