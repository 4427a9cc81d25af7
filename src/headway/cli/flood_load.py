"""Which load do a measurement's options mean?"""

from headway.bench.load import Load
from headway.errors import ConfigError


def flood_load(
    *,
    duration_s: float,
    warmup_s: float,
    grace_s: float,
    bulk_callers: int,
    critical_every_s: float,
    seed: int,
) -> Load:
    """Return the load. Raises ConfigError when nothing of it would be counted."""
    if not warmup_s < duration_s:
        raise ConfigError("--warmup", f"must be below --duration, {duration_s:g} s")
    return Load(
        bulk_callers=bulk_callers,
        critical_every_s=critical_every_s,
        duration_s=duration_s,
        warmup_s=warmup_s,
        grace_s=grace_s,
        seed=seed,
    )
