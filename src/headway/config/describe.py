"""How does each setting read in words?"""

from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headway.config.schema import (
    EngineConfig,
    GatewayConfig,
    KeyConfig,
    NamedTierConfig,
    NodeConfig,
    Section,
)
from headway.core.tier import LatencyTarget, Tier

SECTIONS: dict[str, type[Section]] = {
    "gateway": GatewayConfig,
    "engine": EngineConfig,
    "tiers[]": NamedTierConfig,
    "keys[]": KeyConfig,
    "nodes[]": NodeConfig,
}
_WORDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "null",
}


class Setting(NamedTuple):
    """One row of the reference: `name` within its section, `type`, `default` and `meaning`."""

    name: str
    type: str
    default: str
    meaning: str


def settings(schema: type[Section]) -> list[Setting]:
    """Return the rows of one section, in the order of the schema."""
    hints = get_type_hints(schema, include_extras=True)
    return [
        Setting(
            name=field.name,
            type=_type_words(hints[field.name]),
            default=_default_words(field),
            meaning=_meaning(hints[field.name]),
        )
        for field in msgspec.structs.fields(schema)
    ]


def markdown_table(schema: type[Section]) -> str:
    """Return the section's rows as a Markdown table."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    rows += [f"| `{s.name}` | {s.type} | {s.default} | {s.meaning} |" for s in settings(schema)]
    return "\n".join(rows)


def literal_values(schema: type[Section], name: str) -> tuple[str, ...]:
    """Return the words that the setting `name` allows, or nothing when it is not a choice."""
    hint = get_type_hints(schema).get(name)
    return get_args(hint) if get_origin(hint) is Literal else ()


def _meaning(hint: Any) -> str:
    return str(next(m.description for m in reversed(hint.__metadata__) if m.description))


def _type_words(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        base, *metas = get_args(hint)
        limits = [limit for meta in metas for limit in _limits(meta)]
        return ", ".join([_type_words(base), *limits])
    if get_origin(hint) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        return "list of words"
    if get_args(hint):
        parts = [part for part in get_args(hint) if part is not UnsetType]
        return " or ".join(_type_words(part) for part in parts)
    return _WORDS[hint]


def _limits(meta: Meta) -> list[str]:
    if meta.ge is not None and meta.le is not None:
        return [f"{meta.ge} to {meta.le}"]
    if meta.ge is not None and meta.lt is not None:
        return [f"{meta.ge} to below {meta.lt}"]
    limits = [] if meta.gt is None else [f"above {meta.gt}"]
    return limits if meta.ge is None else [*limits, f"at least {meta.ge}"]


def _default_words(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is UNSET:
        blank = Tier(name="", rank=0)
        value = getattr(
            LatencyTarget() if hasattr(LatencyTarget, field.name) else blank, field.name
        )
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return "none" if not value else ", ".join(value)
    return f"`{value}`" if isinstance(value, str) else f"{value}"
