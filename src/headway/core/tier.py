"""What is a tier, and which one does a name or a number mean?

The defaults are the table of three in `docs/policies.md`. Rank 0 is the most urgent, as in vLLM.
"""

from dataclasses import dataclass
from math import isfinite

from headway.errors import ConfigError

MAX_TIERS = 4


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """What a tier promises, in seconds; None promises nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    gap_s: float | None = None

    @property
    def is_paced(self) -> bool:
        """Whether each next token has its time, not just the first."""
        return self.tpot_s is not None or self.gap_s is not None


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of importance."""

    name: str
    rank: int
    aliases: tuple[str, ...] = ()
    """Further values of `X-Priority` that mean this tier."""
    service_tiers: tuple[str, ...] = ()
    """Values of OpenAI's `service_tier` that ask for this tier; the last one is answered."""
    floor: float = 0.0
    """Share of service guaranteed while backlogged, 0 to below 1 (mClock: reservation)."""
    target: LatencyTarget = LatencyTarget()
    queue_timeout_s: float | None = None
    """Longest wait in the gateway's queue; None waits for ever."""
    max_queued: int = 5000
    """Most requests queued at the gateway."""
    max_queued_tokens: int = 10_000_000
    """Most estimated tokens queued at the gateway."""
    reserve: float = 0.0
    """Share of a node's slots and KV blocks that lower tiers leave free for this one."""
    preemptible: bool = True
    """Whether a more urgent tier may take this one's slot or blocks."""
    price_factor: float = 1.0

    @property
    def service_tier(self) -> str:
        """The OpenAI `service_tier` that answers say was used."""
        return self.service_tiers[-1] if self.service_tiers else self.name


def node_priority(rank: int) -> int:
    """Return the `priority` of a rank as vLLM nodes understand it: 0 is the ordinary tier."""
    return rank - 1


DEFAULT_TIERS = (
    Tier(
        name="critical",
        rank=0,
        aliases=("high",),
        service_tiers=("fast", "scale", "priority"),
        target=LatencyTarget(ttft_s=0.5, tpot_s=0.05, gap_s=0.2),
        queue_timeout_s=5.0,
        reserve=0.1,
        preemptible=False,
        price_factor=2.0,
    ),
    Tier(
        name="normal",
        rank=1,
        aliases=("medium",),
        service_tiers=("default",),
        floor=0.15,
        target=LatencyTarget(ttft_s=2.0, tpot_s=0.1, gap_s=1.0),
        queue_timeout_s=60.0,
        reserve=0.05,
    ),
    Tier(
        name="bulk",
        rank=2,
        aliases=("low",),
        service_tiers=("flex",),
        floor=0.05,
        max_queued=100_000,
        max_queued_tokens=200_000_000,
        price_factor=0.5,
    ),
)


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of one installation, most urgent first. Raises ConfigError when they contradict."""

    all: tuple[Tier, ...] = DEFAULT_TIERS

    def __post_init__(self) -> None:
        """Refuse what could not be scheduled, by the key that is wrong."""
        if not 2 <= len(self.all) <= MAX_TIERS:
            reason = "each further tier adds a floor to the critical tier's worst wait"
            raise ConfigError("tiers", f"2 to {MAX_TIERS} tiers, got {len(self.all)}: {reason}")
        seen: set[str] = set()
        for index, tier in enumerate(self.all):
            _check_tier(index, tier)
            names = {tier.name, *tier.aliases}
            if clash := names & seen:
                raise ConfigError(f"tiers[{index}].name", f"{sorted(clash)} named twice")
            seen |= names
        asked = [name for tier in self.all for name in tier.service_tiers]
        if clash := {name for name in asked if asked.count(name) > 1}:
            raise ConfigError("tiers", f"service_tiers {sorted(clash)} claimed twice")
        if sum(tier.floor for tier in self.all) >= 1:
            raise ConfigError("tiers", "the floors add up to 1 or more; nothing would be left")
        if sum(tier.reserve for tier in self.all) >= 1:
            raise ConfigError("tiers", "the reserves add up to 1 or more; the last gets nothing")

    def __len__(self) -> int:
        """Return how many tiers there are."""
        return len(self.all)

    def by_rank(self, rank: int) -> Tier:
        """Return the tier of `rank`. Raises IndexError for a rank that does not exist."""
        if rank < 0:
            raise IndexError(f"no tier of rank {rank}")
        return self.all[rank]

    def by_name(self, name: str) -> Tier | None:
        """Return the tier that `X-Priority: name` asks for, or None."""
        return next((t for t in self.all if name == t.name or name in t.aliases), None)

    def by_service_tier(self, value: str) -> Tier | None:
        """Return the tier that OpenAI's `service_tier` value asks for, or None."""
        return next((t for t in self.all if value in t.service_tiers), None)

    def by_priority(self, priority: int) -> Tier:
        """Return the tier that a vLLM `priority` means; numbers beyond the ends mean the ends."""
        return self.all[min(max(priority + 1, 0), len(self.all) - 1)]


def _check_tier(index: int, tier: Tier) -> None:
    at = f"tiers[{index}]"
    if tier.rank != index:
        raise ConfigError(f"{at}.rank", f"must be {index}: tiers are listed most urgent first")
    for field in ("floor", "reserve"):
        value = getattr(tier, field)
        if not (isfinite(value) and 0 <= value < 1):
            raise ConfigError(f"{at}.{field}", f"a share from 0 to below 1, got {value}")
    if tier.queue_timeout_s is not None and not tier.queue_timeout_s > 0:
        raise ConfigError(f"{at}.queue_timeout_s", "must be above 0, or null for no limit")
    for field in ("max_queued", "max_queued_tokens"):
        if getattr(tier, field) < 1:
            raise ConfigError(f"{at}.{field}", "must be at least 1")
