"""Who is calling, at which tier?

Tier, tenant and weight come from the key alone; what a client asks for can only lower the tier.
The asked tier is `X-Priority` when that header is there, else the body's `service_tier`. When both
are there and differ, the header wins: a proxy or an operator can set it without touching a body,
and entitlement applies to it all the same. Both are checked, so an unknown value of either is a
400 even when the other one decides. `auto`, null or nothing means the key's default tier.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from headway.config import KeyConfig
from headway.core.tier import Tier, Tiers
from headway.errors import (
    AuthenticationError,
    ConfigError,
    InvalidRequestError,
    PermissionDeniedError,
)

AUTO = "auto"
OPEN_TENANT = "default"
PRIORITY_ASKED_HEADER = "X-Priority"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. Ranks: 0 is the most urgent."""

    tenant: str
    weight: float
    highest_rank: int
    default_rank: int
    strict: bool


@dataclass(frozen=True, slots=True)
class TierChoice:
    """The tier that was asked for and the one that is used; they differ after a downgrade."""

    asked: Tier
    used: Tier


class Identity:
    """The callers of one gateway, found by key.

    Keys are kept and compared as SHA-256 digests, so the time a look-up takes tells nothing about
    a key. Without any key the gateway is open: everyone is one tenant, entitled to every tier.
    Raises ConfigError when a key names a tier that does not exist, or two keys are equal.
    """

    def __init__(self, tiers: Tiers, keys: Iterable[KeyConfig], *, strict: bool = False) -> None:
        self._tiers = tiers
        self._callers: dict[bytes, Caller] = {}
        for index, key in enumerate(keys):
            digest = sha256(key.key.encode()).digest()
            if digest in self._callers:
                raise ConfigError(f"keys[{index}].key", "the same key is configured twice")
            self._callers[digest] = _caller(tiers, key, f"keys[{index}]", strict=strict)
        self._open = None if self._callers else _open_caller(tiers)
        self._allowed_priorities = _words(name for t in tiers.all for name in (t.name, *t.aliases))
        self._allowed_service_tiers = _words(
            [AUTO, *(s for t in tiers.all for s in t.service_tiers)]
        )

    @property
    def is_open(self) -> bool:
        """Whether callers need no key."""
        return self._open is not None

    def authenticate(self, authorization: str | None) -> Caller:
        """Return who is calling, from the Authorization header.

        Raises AuthenticationError for no key or an unknown one.
        """
        if self._open is not None:
            return self._open
        if authorization is None:
            raise AuthenticationError("no API key: send the header 'Authorization: Bearer <key>'")
        scheme, _, key = authorization.partition(" ")
        caller = self._callers.get(sha256(key.strip().encode()).digest())
        if caller is None or scheme.lower() != "bearer":
            raise AuthenticationError("the API key is not known here")
        return caller

    def choose_tier(
        self, caller: Caller, priority: str | None, service_tier: str | None
    ) -> TierChoice:
        """Return the tier asked for and the tier used.

        `priority` is the `X-Priority` header, `service_tier` the body's field; None means absent.
        Raises InvalidRequestError for an unknown value, and PermissionDeniedError when a strict
        caller asks for more than it may have.
        """
        by_header = None if priority is None else self._by_priority(priority)
        by_body = self._by_service_tier(service_tier)
        asked = by_header or by_body or self._tiers.by_rank(caller.default_rank)
        if asked.rank >= caller.highest_rank:
            return TierChoice(asked, asked)
        best = self._tiers.by_rank(caller.highest_rank)
        if caller.strict:
            param = "service_tier" if by_header is None else PRIORITY_ASKED_HEADER
            text = f"this key may not use the tier '{asked.name}'; its highest is '{best.name}'"
            raise PermissionDeniedError(text, param=param)
        return TierChoice(asked, best)

    def _by_priority(self, value: str) -> Tier:
        tier = self._tiers.by_name(value)
        if tier is None:
            text = f"{PRIORITY_ASKED_HEADER} must be one of {self._allowed_priorities}"
            raise InvalidRequestError(text, param=PRIORITY_ASKED_HEADER)
        return tier

    def _by_service_tier(self, value: str | None) -> Tier | None:
        if value is None or value == AUTO:
            return None
        tier = self._tiers.by_service_tier(value)
        if tier is None:
            text = f"service_tier must be one of {self._allowed_service_tiers}"
            raise InvalidRequestError(text, param="service_tier")
        return tier


def _caller(tiers: Tiers, key: KeyConfig, path: str, *, strict: bool) -> Caller:
    highest = tiers.by_name(key.highest_tier)
    default = tiers.by_name(key.default_tier)
    if highest is None:
        raise ConfigError(f"{path}.highest_tier", f"no tier is called '{key.highest_tier}'")
    if default is None:
        raise ConfigError(f"{path}.default_tier", f"no tier is called '{key.default_tier}'")
    return Caller(
        tenant=key.tenant,
        weight=key.weight,
        highest_rank=highest.rank,
        # Asking for nothing never gives more than asking openly would.
        default_rank=max(default.rank, highest.rank),
        strict=key.strict or strict,
    )


def _open_caller(tiers: Tiers) -> Caller:
    ordinary = tiers.by_service_tier("default") or tiers.by_rank(len(tiers) // 2)
    return Caller(OPEN_TENANT, 1.0, 0, ordinary.rank, strict=False)


def _words(values: Iterable[str]) -> str:
    return ", ".join(values)
