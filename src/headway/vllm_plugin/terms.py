"""Whose is a request that vLLM was given, and how urgent is it?

The priority says the tier; tenant, weight and deadline are extra arguments (`wire/node.py`). Our
gateway sends all of them, of the deadline what is left of it. vLLM has accepted the request
already, so what makes no sense is taken as not said.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from headway.core.service import MAX_WEIGHT, MIN_WEIGHT
from headway.core.tier import Tier, Tiers
from headway.wire.node import XARG_DEADLINE_S, XARG_TENANT, XARG_WEIGHT

MAX_TENANT_CHARS = 128
"""A longer name is kept as its digest: names are kept for good, and clients choose them."""


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
        _bounded(tenant) if isinstance(tenant, str) else "",
        1.0 if weight is None else min(max(weight, MIN_WEIGHT), MAX_WEIGHT),
        _positive(extra_args.get(XARG_DEADLINE_S)),
    )


def _bounded(tenant: str) -> str:
    if len(tenant) <= MAX_TENANT_CHARS:
        return tenant
    # JSON may carry half a character, which UTF-8 otherwise refuses.
    return f"sha256:{sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Compared first: an integer of any length can be, but not made a float.
    return float(value) if 0 < value <= sys.float_info.max else None
