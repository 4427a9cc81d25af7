"""Whose is a request that vLLM was given, and how urgent is it?

Our gateway sends all of it (`wire/node.py`): the priority of the tier, and tenant, weight and
deadline as extra arguments. Of any other client the priority alone counts. vLLM has accepted the
request already, so what makes no sense is taken as not said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from headway.core.tier import Tier, Tiers
from headway.wire.node import XARG_DEADLINE_S, XARG_TENANT, XARG_WEIGHT

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6
"""Beyond these, sums of cost over weight would lose the small ones."""


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a request is served."""

    tier: Tier
    tenant: str = ""
    weight: float = 1.0
    deadline_s: float | None = None
    """Seconds from arrival by which the answer is wanted; None: no deadline."""


def read_terms(priority: int, extra_args: Mapping[str, Any] | None, tiers: Tiers) -> Terms:
    """Return the terms of a request with vLLM's `priority` and `vllm_xargs`."""
    tier = tiers.by_priority(priority)
    if not extra_args:
        return Terms(tier)
    tenant = extra_args.get(XARG_TENANT)
    weight = _positive(extra_args.get(XARG_WEIGHT))
    return Terms(
        tier,
        tenant if isinstance(tenant, str) else "",
        1.0 if weight is None else min(max(weight, MIN_WEIGHT), MAX_WEIGHT),
        _positive(extra_args.get(XARG_DEADLINE_S)),
    )


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and value > 0 else None
