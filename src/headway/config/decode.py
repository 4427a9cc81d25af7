"""Does a section fit its schema, and if not, which key is wrong and what is allowed?"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

import msgspec

from headway.config.describe import literal_values
from headway.config.schema import Section
from headway.errors import ConfigError

S = TypeVar("S", bound=Section)


def check_names(value: Mapping[str, object], allowed: Iterable[str], at: str) -> None:
    """Raise ConfigError at the first key that is not allowed, with the nearest one that is."""
    names = tuple(allowed)
    for key in value:
        if key in names:
            continue
        near = get_close_matches(key, names, n=1)
        guess = f"did you mean {near[0]!r}? " if near else ""
        path = f"{at}.{key}" if at else key
        raise ConfigError(path, f"unknown key; {guess}allowed: {', '.join(names)}")


def decode(value: object, schema: type[S], at: str) -> S:
    """Return `value` as `schema`; None is an empty section. Raises ConfigError by path."""
    plain: object = {} if value is None else value
    if not isinstance(plain, dict):
        raise ConfigError(at, f"must be a mapping, as `{schema.__struct_fields__[0]}: ...`")
    check_names(plain, schema.__struct_fields__, at)
    try:
        return msgspec.convert(plain, schema)
    except msgspec.ValidationError as error:
        message, path = _split(str(error))
        choices = literal_values(schema, path.strip(".").partition("[")[0])
        allowed = f"; allowed: {', '.join(choices)}" if choices else ""
        raise ConfigError(f"{at}{path}", f"{message}{allowed}") from error


def _split(text: str) -> tuple[str, str]:
    """Return msgspec's message and its path, as `.port`; the path is empty for the section."""
    message, _, where = text.partition(" - at `$")
    plain = message.removeprefix("Object ").replace("`", "")
    return plain[:1].lower() + plain[1:], where.rstrip("`")
