"""By how much is each rotary frequency slowed, so that a model reaches a longer context?"""

from collections.abc import Mapping
from math import isfinite, pi

from headway.errors import ModelLoadError

ROPE_TYPES = ("default", "linear", "llama3")


def rope_factors(
    where: str, rope: Mapping[str, object], theta: float, head_dim: int, max_positions: int
) -> tuple[float, ...]:
    """The divisor of each of the `head_dim / 2` frequencies; empty when none is slowed.

    `rope` is `rope_parameters` or `rope_scaling` of config.json. Raises ModelLoadError, naming
    `where` and the key, for another type or an impossible number.
    """
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise ModelLoadError(
            f"{where}: rope_type {kind!r} is not supported, only {', '.join(ROPE_TYPES)}"
        )
    if kind == "default":
        return ()
    factor = _number(where, rope, "factor")
    if kind == "linear":
        return (factor,) * (head_dim // 2)
    original = max_positions
    if rope.get("original_max_position_embeddings") is not None:
        original = int(_number(where, rope, "original_max_position_embeddings"))
    low, high = (_number(where, rope, f"{name}_freq_factor") for name in ("low", "high"))
    if low >= high:
        raise ModelLoadError(f"{where}: low_freq_factor {low} is not below high_freq_factor {high}")
    divisors = []
    for index in range(head_dim // 2):
        wavelength = 2 * pi * theta ** (2 * index / head_dim)
        turns = original / wavelength
        # 1 keeps a frequency as it is (many turns within the original context), 0 slows it fully.
        keep = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1.0 / ((1.0 - keep) / factor + keep))
    return tuple(divisors)


def _number(where: str, rope: Mapping[str, object], key: str) -> float:
    value = rope.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelLoadError(f"{where}: rope scaling needs the number {key}, got {value!r}")
    if not isfinite(value) or value <= 0:
        raise ModelLoadError(f"{where}: rope scaling {key} must be positive, got {value!r}")
    return float(value)
