"""What can be set of an engine, and which settings contradict each other?"""

from dataclasses import dataclass, field, fields
from typing import Any

from headway.core.tier import Tiers
from headway.errors import ConfigError

POLICIES = ("qos", "fcfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Settings of an `LLMEngine`; names are vLLM's. Raises ConfigError, naming the setting."""

    max_num_seqs: int = 256
    """Most sequences that hold blocks at once."""
    max_model_len: int | None = None
    """Longest prompt and answer in tokens; None: the model's context."""
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    block_size: int = 16
    num_kv_blocks: int | None = None
    """None: as many as `kv_cache_bytes` holds."""
    kv_cache_bytes: int | None = None
    """None: sized from the machine's free memory."""
    max_num_batched_tokens: int = 512
    dtype: str = "auto"
    scheduling_policy: str = "qos"
    """`qos` by tier, floor and tenant; `fcfs` by arrival, as vLLM does by default."""
    tiers: Tiers = field(default_factory=Tiers)
    seed: int = 0
    """Seeds what is drawn for requests that bring no seed."""
    max_preemptions: int = 3
    """A sequence preempted this often is then protected until it ends."""
    efficiency: float = 0.97
    """Least tokens per second, over those of a full step, that the tightest target must leave;
    where it leaves less, all targets are stretched. Higher: more throughput, longer gaps."""
    min_efficiency: float = 0.8
    """The same of a step that lower tiers fill up beside a critical prompt, or that is late."""
    calibrate: bool = True
    """Measure the iteration time at start and keep steps short enough for the tiers' targets."""

    def __post_init__(self) -> None:
        """Refuse what could not run."""
        for name in ("max_num_seqs", "block_size", "max_num_batched_tokens", "max_preemptions"):
            _check_positive(name, getattr(self, name))
        for name in ("max_model_len", "num_kv_blocks", "kv_cache_bytes"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        for name in ("efficiency", "min_efficiency"):
            if not 0 < getattr(self, name) < 1:
                raise ConfigError(name, f"a share between 0 and 1, got {getattr(self, name)!r}")
        if self.min_efficiency > self.efficiency:
            raise ConfigError("min_efficiency", "must not be above efficiency")
        if self.scheduling_policy not in POLICIES:
            reason = f"must be one of {', '.join(POLICIES)}, got {self.scheduling_policy!r}"
            raise ConfigError("scheduling_policy", reason)


def engine_options(settings: dict[str, Any]) -> EngineOptions:
    """Return the options. Raises ConfigError for a name that does not exist."""
    known = [option.name for option in fields(EngineOptions)]
    for name in settings:
        if name not in known:
            raise ConfigError(name, f"unknown; an engine has {', '.join(known)}")
    return EngineOptions(**settings)


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(name, f"must be an integer of at least 1, got {value!r}")
