"""What does a value of `--set` mean for a scenario?

What it means in a scenario file, which is TOML: there 1e6 is a number. What is no TOML value is
read as for all other settings: `critical`, `null`.
"""

import tomllib
from datetime import date, time

from headway.config.source import parse_yaml


def scenario_value(text: str, origin: str) -> object:
    """Return the value. Raises ConfigError by origin for what is neither TOML nor YAML."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return parse_yaml(text, origin)
    value = document["value"]
    # No key is a time of day; 1:30:00 is a number of seconds in YAML.
    if len(document) > 1 or isinstance(value, date | time):
        return parse_yaml(text, origin)
    return value
