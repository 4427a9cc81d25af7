"""Who arrived when, by a CSV file?

Columns `arrival_s`, `prompt_tokens` and `output_tokens`, and `tenant` and `tier` where known;
others are ignored. Lines starting with `#` are comments. A byte order mark, as spreadsheets write
it, is no part of the first column's name.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path

from headway.errors import ConfigError
from headway.sim.scenario import MOST

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
COLUMNS = (*REQUIRED, "tenant", "tier")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace. `arrival_s` counts from the first row."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    tenant: str = ""
    tier: str = ""
    line: int = 0
    """Of the file."""


@lru_cache(maxsize=8)
def read_trace(path: Path, token_divisor: float = 1.0) -> tuple[TraceRow, ...]:
    """Return the rows. Raises ConfigError that names the file, and for a bad row its line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = tuple(_rows(file, path, token_divisor))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, csv.Error) as error:
        raise ConfigError(str(path), f"not a CSV file: {error}") from error
    if not rows:
        raise ConfigError(str(path), "no rows")
    return rows


def _rows(file: Iterator[str], path: Path, divisor: float) -> Iterator[TraceRow]:
    numbered = ((n, line) for n, line in enumerate(file, start=1) if not line.startswith("#"))
    lines: list[int] = []

    def remembered() -> Iterator[str]:
        for number, line in numbered:
            lines.append(number)
            yield line

    reader = csv.DictReader(remembered())
    missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError(str(path), f"no column {', '.join(missing)} in the header")
    twice = [name for name in COLUMNS if list(reader.fieldnames or ()).count(name) > 1]
    if twice:
        raise ConfigError(str(path), f"several columns {', '.join(twice)} in the header")
    first, latest = None, 0.0
    for record in reader:
        at = f"{path}, line {lines[-1]}"
        arrival = _number(record, "arrival_s", at)
        first = arrival if first is None else first
        if arrival - first < latest:
            raise ConfigError(at, "arrival_s is below the row before; sort the rows by it")
        latest = arrival - first
        yield TraceRow(
            arrival_s=latest,
            prompt_tokens=_count(record, "prompt_tokens", divisor, at),
            output_tokens=_count(record, "output_tokens", divisor, at),
            tenant=record.get("tenant") or "",
            tier=record.get("tier") or "",
            line=lines[-1],
        )


def _number(record: dict[str, str], name: str, at: str) -> float:
    text = record.get(name)
    try:
        value = float(text if text is not None else "")
    except ValueError:
        raise ConfigError(at, f"{name} must be a number, got {text!r}") from None
    if not (isfinite(value) and value >= 0):
        raise ConfigError(at, f"{name} must be a number of at least 0, got {text}")
    return value


def _count(record: dict[str, str], name: str, divisor: float, at: str) -> int:
    """A prompt and an answer have at least one token, whatever the row or the divisor says."""
    count = _number(record, name, at) / divisor
    if count > MOST:
        raise ConfigError(at, f"{name} must be at most {MOST:,} tokens, got {count:g}")
    return max(1, round(count))
