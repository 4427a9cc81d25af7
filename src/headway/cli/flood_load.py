"""Which load do a measurement's options mean?"""

from collections.abc import Mapping
from math import isfinite

from headway.bench.load import Load
from headway.errors import ConfigError

LONGEST_S = 86_400.0
"""A day; all arrivals of a phase are drawn when it begins."""


def check_seconds(options: Mapping[str, float]) -> None:
    """Raise ConfigError, by option, for a number that is no length of time to be waited for."""
    for option, seconds in options.items():
        if not isfinite(seconds) or seconds > LONGEST_S:
            raise ConfigError(option, f"must be at most {LONGEST_S:g} s, got {seconds:g}")


def flood_load(
    *,
    duration_s: float,
    warmup_s: float,
    grace_s: float,
    bulk_callers: int,
    critical_every_s: float,
    seed: int,
    critical_from_s: float = 0.0,
) -> Load:
    """Return the load. Raises ConfigError when nothing of it would be counted."""
    check_seconds(
        {
            "--duration": duration_s,
            "--warmup": warmup_s,
            "--grace": grace_s,
            "--critical-every": critical_every_s,
            "--critical-from": critical_from_s,
        }
    )
    if not warmup_s < duration_s:
        raise ConfigError("--warmup", f"must be below --duration, {duration_s:g} s")
    if not critical_from_s < duration_s:
        raise ConfigError("--critical-from", f"must be below --duration, {duration_s:g} s")
    return Load(
        bulk_callers=bulk_callers,
        critical_every_s=critical_every_s,
        critical_from_s=critical_from_s,
        duration_s=duration_s,
        warmup_s=warmup_s,
        grace_s=grace_s,
        seed=seed,
    )
