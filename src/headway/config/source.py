"""What does the YAML text say, before anything is known of its meaning?"""

from collections.abc import Hashable
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from headway.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """The safe loader, which also refuses a key that is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping. Raises ConstructorError at a second key of the same name."""
        seen: dict[object, int] = {}
        for key_node, _ in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            if key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key}' is already given in line {seen[key]}", key_node.start_mark
                )
            seen[key] = line
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the file's top-level mapping. Raises ConfigError by file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"not UTF-8 text, at byte {error.start}") from error
    except OSError as error:
        reason = error.strerror
        raise ConfigError(str(path), f"cannot be read: {reason}") from error
    document = parse_yaml(text, str(path))
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(str(path), "must be a mapping of sections, as `gateway:`")
    return document


def parse_yaml(text: str, origin: str) -> Any:
    """Return the plain value of `text`. Raises ConfigError by origin, line or path."""
    try:
        document = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise ConfigError(f"{origin}{line}", error.problem or "not valid YAML") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(origin, f"not valid YAML: {error}") from error
    _check_plain(document, "")
    return document


def _check_plain(value: object, at: str) -> None:
    """Refuse keys that are not text and numbers that are not finite, by path."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ConfigError(at or "top level", f"the key {key!r} must be text")
            _check_plain(item, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_plain(item, f"{at}[{index}]")
    elif isinstance(value, float) and not isfinite(value):
        raise ConfigError(at or "value", f"must be a finite number, got {value}")
