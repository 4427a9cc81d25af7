"""Who is calling, at which tier (trial A7)."""

import pytest

from headway.config import KeyConfig
from headway.core.tier import Tiers
from headway.errors import (
    AuthenticationError,
    ConfigError,
    InvalidRequestError,
    PermissionDeniedError,
)
from headway.gateway.identity import Identity

BULK = KeyConfig(key="k-bulk", tenant="b", highest_tier="bulk", default_tier="bulk")
NORMAL = KeyConfig(key="k-normal", tenant="n", weight=2.0)
TOP = KeyConfig(key="k-top", tenant="t", highest_tier="critical", default_tier="normal")
STRICT = KeyConfig(key="k-strict", tenant="s", strict=True)


def identity(*keys: KeyConfig, strict: bool = False) -> Identity:
    return Identity(Tiers(), keys or (BULK, NORMAL, TOP, STRICT), strict=strict)


def chosen(key: str, priority: str | None = None, service_tier: str | None = None) -> str:
    who = identity()
    choice = who.choose_tier(who.authenticate(f"Bearer {key}"), priority, service_tier)
    return choice.used.name


@pytest.mark.parametrize("header", [None, "", "k-normal", "Basic k-normal", "Bearer", "Bearer no"])
def test_without_a_known_key_there_is_no_caller(header: str | None) -> None:
    with pytest.raises(AuthenticationError):
        identity().authenticate(header)


@pytest.mark.parametrize("header", ["Bearer k-normal", "bearer k-normal", "Bearer  k-normal"])
def test_a_key_gives_tenant_and_weight(header: str) -> None:
    caller = identity().authenticate(header)
    assert (caller.tenant, caller.weight) == ("n", 2.0)


@pytest.mark.parametrize(
    ("key", "priority", "service_tier", "used"),
    [
        ("k-top", None, None, "normal"),
        ("k-top", "critical", None, "critical"),
        ("k-top", "high", None, "critical"),
        ("k-top", None, "priority", "critical"),
        ("k-top", None, "fast", "critical"),
        ("k-top", None, "auto", "normal"),
        ("k-top", "low", None, "bulk"),
        ("k-top", None, "flex", "bulk"),
        ("k-normal", "critical", None, "normal"),
        ("k-normal", None, "priority", "normal"),
        ("k-bulk", "high", None, "bulk"),
        ("k-bulk", None, "priority", "bulk"),
        ("k-bulk", None, None, "bulk"),
    ],
)
def test_the_tier_used_is_the_least_of_asked_and_allowed(
    key: str, priority: str | None, service_tier: str | None, used: str
) -> None:
    assert chosen(key, priority, service_tier) == used


@pytest.mark.parametrize(
    ("priority", "service_tier", "used"),
    [("bulk", "priority", "bulk"), ("critical", "flex", "critical"), ("normal", "auto", "normal")],
)
def test_the_header_wins_over_the_body(priority: str, service_tier: str, used: str) -> None:
    assert chosen("k-top", priority, service_tier) == used


@pytest.mark.parametrize("value", ["HIGH", "0", "", "999999999999", "high,batch", "high ", "auto"])
def test_an_unknown_priority_is_refused_by_name(value: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chosen("k-top", value)
    assert caught.value.param == "X-Priority"
    assert "critical, high, normal" in caught.value.message


@pytest.mark.parametrize("priority", [None, "bulk"])
@pytest.mark.parametrize("value", ["", "turbo", "critical", "Priority"])
def test_an_unknown_service_tier_is_refused_by_name(value: str, priority: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chosen("k-top", priority, value)
    assert caught.value.param == "service_tier"


def test_a_strict_key_is_refused_what_it_may_not_have() -> None:
    with pytest.raises(PermissionDeniedError) as caught:
        chosen("k-strict", "critical")
    assert (caught.value.code, caught.value.param) == ("tier_not_entitled", "X-Priority")
    with pytest.raises(PermissionDeniedError) as caught:
        chosen("k-strict", None, "priority")
    assert caught.value.param == "service_tier"
    assert chosen("k-strict", "bulk") == "bulk"


def test_the_gateway_can_make_every_key_strict() -> None:
    who = identity(strict=True)
    with pytest.raises(PermissionDeniedError):
        who.choose_tier(who.authenticate("Bearer k-normal"), "critical", None)


def test_a_downgrade_remembers_what_was_asked() -> None:
    who = identity()
    choice = who.choose_tier(who.authenticate("Bearer k-bulk"), "critical", None)
    assert (choice.asked.name, choice.used.name) == ("critical", "bulk")


def test_a_default_above_the_highest_gives_the_highest() -> None:
    odd = KeyConfig(key="k", tenant="o", highest_tier="bulk", default_tier="critical")
    who = identity(odd)
    assert who.choose_tier(who.authenticate("Bearer k"), None, None).used.name == "bulk"


def test_without_keys_everybody_is_one_tenant_with_every_tier() -> None:
    who = Identity(Tiers(), ())
    caller = who.authenticate(None)
    assert who.is_open
    assert caller.tenant == "default"
    assert who.choose_tier(caller, None, None).used.name == "normal"
    assert who.choose_tier(caller, "critical", None).used.name == "critical"
    assert who.authenticate("Bearer anything") == caller


def test_impossible_keys_are_refused_by_path() -> None:
    for key, field in (
        (KeyConfig(key="k", tenant="t", highest_tier="gold"), "highest_tier"),
        (KeyConfig(key="k", tenant="t", default_tier="gold"), "default_tier"),
    ):
        with pytest.raises(ConfigError, match=rf"keys\[0\]\.{field}"):
            identity(key)
    with pytest.raises(ConfigError, match=r"keys\[1\]\.key"):
        identity(NORMAL, NORMAL)
