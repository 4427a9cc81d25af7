"""Does a request in vLLM get the tier, tenant, weight and deadline that were sent with it?"""

from math import inf, nan
from typing import Any

import pytest

from headway.core.service import MAX_WEIGHT, MIN_WEIGHT
from headway.core.tier import Tiers
from headway.vllm_plugin.terms import MAX_TENANT_CHARS, read_terms

TIERS = Tiers()


@pytest.mark.parametrize(
    ("priority", "tier"),
    [(-5, "critical"), (-1, "critical"), (0, "normal"), (1, "bulk"), (99, "bulk")],
)
def test_stock_clients_get_a_tier_from_the_priority(priority: int, tier: str) -> None:
    terms = read_terms(priority, None, TIERS)
    assert (terms.tier.name, terms.tenant, terms.weight, terms.deadline_s) == (tier, "", 1.0, None)


def test_what_the_gateway_sends_is_read() -> None:
    extra = {"headway_tenant": "acme", "headway_weight": 2, "headway_deadline_s": 30.0, "x": 1}
    terms = read_terms(0, extra, TIERS)
    assert (terms.tenant, terms.weight, terms.deadline_s) == ("acme", 2.0, 30.0)


@pytest.mark.parametrize(
    "value", [0, -1.0, nan, inf, -inf, 10**400, -(10**400), "2", True, None, [1.0]]
)
def test_what_makes_no_sense_is_taken_as_not_said(value: Any) -> None:
    terms = read_terms(0, {"headway_weight": value, "headway_deadline_s": value}, TIERS)
    assert (terms.weight, terms.deadline_s) == (1.0, None)
    assert read_terms(0, {"headway_tenant": 7}, TIERS).tenant == ""


def test_weights_are_bounded() -> None:
    assert read_terms(0, {"headway_weight": 1e30}, TIERS).weight == MAX_WEIGHT
    assert read_terms(0, {"headway_weight": 1e-30}, TIERS).weight == MIN_WEIGHT


def test_tenants_with_long_names_are_told_apart_by_short_ones() -> None:
    def kept(name: str) -> str:
        return read_terms(0, {"headway_tenant": name}, TIERS).tenant

    longest = "x" * MAX_TENANT_CHARS
    assert kept(longest) == longest
    names = [longest, longest + "y", longest + "z", "ü" * 1_000_000, "\ud800" * 1000]
    assert len({kept(name) for name in names}) == len(names)
    assert all(len(kept(name)) <= MAX_TENANT_CHARS for name in names)
    assert kept(names[1]) == kept(names[1])
