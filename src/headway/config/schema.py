"""What can be set, and what does each setting mean?

Every setting of `headway.yaml` is a field here, with its range and one line of meaning; units are
in the names. `docs/configuration.md` is compared with this file by a test.
"""

from pathlib import PurePath
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from headway.core.service import MAX_WEIGHT, MIN_WEIGHT
from headway.core.tier import Tiers

Policy = Literal["qos", "fcfs"]

_Port = Annotated[int, Meta(ge=0, le=65535)]
_Seconds = Annotated[float, Meta(gt=0)]
_Count = Annotated[int, Meta(ge=1)]
_Bytes = Annotated[int, Meta(ge=1024)]
_Share = Annotated[float, Meta(ge=0, lt=1)]
_Efficiency = Annotated[float, Meta(gt=0, lt=1)]
_Word = Annotated[str, Meta(pattern="^[a-z][a-z0-9_-]{0,31}$")]
_Label = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_Text = Annotated[str, Meta(min_length=1, max_length=128)]


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the configuration; immutable, unknown keys refused."""


class GatewayConfig(Section, frozen=True, kw_only=True):
    """The door: where it listens, how it queues and how long it waits."""

    host: Annotated[
        _Text, Meta(description="Address to listen on. Without keys, loopback only.")
    ] = "127.0.0.1"
    port: Annotated[_Port, Meta(description="Port to listen on; 0: any free one.")] = 8000
    policy: Annotated[
        Policy,
        Meta(description="Order of the queue: `qos` by tier, floor and tenant; `fcfs` by arrival."),
    ] = "qos"
    max_queued_total: Annotated[
        _Count | None,
        Meta(description="Most requests queued in all tiers; null: what the tiers allow."),
    ] = None
    max_queued_tokens_total: Annotated[
        _Count | None,
        Meta(description="Most estimated tokens queued in all tiers; null: what the tiers allow."),
    ] = None
    max_body_bytes: Annotated[
        _Bytes, Meta(description="Largest request body; beyond it the answer is 413.")
    ] = 4 * 1024 * 1024
    write_timeout_s: Annotated[
        _Seconds, Meta(description="Longest time a client may leave a chunk unread.")
    ] = 30.0
    connect_timeout_s: Annotated[
        _Seconds, Meta(description="Longest time to open a connection to a node.")
    ] = 2.0
    first_byte_timeout_s: Annotated[
        _Seconds, Meta(description="Longest time from sending a request to a node's first byte.")
    ] = 120.0
    gap_timeout_s: Annotated[
        _Seconds, Meta(description="Longest silence of a node in the middle of an answer.")
    ] = 60.0
    drain_s: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="On SIGTERM, longest time for requests in progress to finish."),
    ] = 30.0
    heartbeat_s: Annotated[
        _Seconds, Meta(description="Time between comments on a stream that has nothing to tell.")
    ] = 10.0
    status_timeout_s: Annotated[
        _Seconds,
        Meta(description="Longest wait before a stream begins; a failure after it is an event."),
    ] = 30.0
    strict_tiers: Annotated[
        bool,
        Meta(description="Refuse (403) instead of lowering a tier that the key does not allow."),
    ] = False
    adaptive_limits: Annotated[
        bool,
        Meta(description="Let the number of requests at a node follow what it shows."),
    ] = True
    replica_headroom: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="Share on top of the urgent load in `headway:desired_replicas`."),
    ] = 0.3
    top_tenants: Annotated[
        _Count, Meta(description="Tenants with a metric label of their own; the rest is `other`.")
    ] = 20


class EngineConfig(Section, frozen=True, kw_only=True):
    """The embedded engine: its model, its memory and its batch."""

    host: Annotated[_Text, Meta(description="Address to listen on; no authentication here.")] = (
        "127.0.0.1"
    )
    port: Annotated[
        _Port,
        Meta(description="Port to listen on; 0: any free one, as `serve` takes if it is busy."),
    ] = 8001
    model: Annotated[
        Annotated[str, Meta(min_length=1)],
        Meta(description="A folder in Hugging Face layout, a GGUF file or `smollm2-135m`."),
    ] = "smollm2-135m"
    served_model_name: Annotated[
        _Text | None, Meta(description="Name clients ask for; null: the model's own.")
    ] = None
    dtype: Annotated[
        Literal["auto", "bfloat16", "float32"],
        Meta(description="Number format of the weights; `auto`: bfloat16 where it is native."),
    ] = "auto"
    max_num_seqs: Annotated[_Count, Meta(description="Most sequences in one iteration.")] = 32
    max_model_len: Annotated[
        _Count | None, Meta(description="Longest prompt and answer in tokens; null: the model's.")
    ] = None
    max_num_batched_tokens: Annotated[
        _Count, Meta(description="Most tokens computed in one iteration.")
    ] = 512
    block_size: Annotated[
        Annotated[int, Meta(ge=1, le=256)], Meta(description="Tokens in one KV block.")
    ] = 16
    num_kv_blocks: Annotated[
        _Count | None, Meta(description="KV blocks; null: as many as `kv_cache_bytes` holds.")
    ] = None
    kv_cache_bytes: Annotated[
        _Bytes | None,
        Meta(description="Memory for the KV cache; null: sized from the machine's free memory."),
    ] = None
    enable_prefix_caching: Annotated[
        bool, Meta(description="Reuse the KV of a tenant's earlier prompts.")
    ] = True
    enable_chunked_prefill: Annotated[
        bool,
        Meta(
            description="Spread a long prompt over several iterations; off: each whole in one, so "
            "set `max_num_batched_tokens` to the longest."
        ),
    ] = True
    scheduling_policy: Annotated[
        Policy, Meta(description="Order of each iteration: `qos` by tier, `fcfs` by arrival.")
    ] = "qos"
    efficiency: Annotated[
        _Efficiency,
        Meta(description="Share of a full iteration's tokens/s that latency targets must leave."),
    ] = 0.97
    min_efficiency: Annotated[
        _Efficiency,
        Meta(description="The same while a critical prompt is computed, or a token is late."),
    ] = 0.8
    max_num_queued_reqs: Annotated[
        _Count, Meta(description="Most requests waiting in the engine; beyond it, 503.")
    ] = 1024
    threads: Annotated[
        _Count | None, Meta(description="Compute threads; null: one for each usable core.")
    ] = None
    max_body_bytes: Annotated[
        _Bytes, Meta(description="Largest request body; not below the gateway's.")
    ] = 8 * 1024 * 1024
    step_log: Annotated[
        _Text | None,
        Meta(description="File for a line of each iteration, for `headway bench fit`; null: none."),
    ] = None

    @property
    def public_name(self) -> str:
        """The name that clients ask for."""
        if self.served_model_name is not None:
            return self.served_model_name
        return PurePath(self.model).name.removesuffix(".gguf")


class TierConfig(Section, frozen=True, kw_only=True):
    """One tier's settings; what is absent comes from the default tier of that name."""

    aliases: Annotated[
        tuple[_Word, ...] | UnsetType,
        Meta(description="Further values of `X-Priority` that mean this tier."),
    ] = UNSET
    service_tiers: Annotated[
        tuple[_Word, ...] | UnsetType,
        Meta(description="OpenAI `service_tier` values that ask for it; the last is answered."),
    ] = UNSET
    floor: Annotated[
        _Share | UnsetType, Meta(description="Share of service guaranteed while work waits.")
    ] = UNSET
    ttft_s: Annotated[
        _Seconds | UnsetType | None, Meta(description="Time to first token aimed at.")
    ] = UNSET
    tpot_s: Annotated[
        _Seconds | UnsetType | None, Meta(description="Mean time per further token aimed at.")
    ] = UNSET
    gap_s: Annotated[
        _Seconds | UnsetType | None, Meta(description="Longest gap between tokens aimed at.")
    ] = UNSET
    queue_timeout_s: Annotated[
        _Seconds | UnsetType | None,
        Meta(description="Longest wait in the gateway's queue; null: for ever."),
    ] = UNSET
    max_queued: Annotated[
        _Count | UnsetType, Meta(description="Most requests queued at the gateway.")
    ] = UNSET
    max_queued_tokens: Annotated[
        _Count | UnsetType, Meta(description="Most estimated tokens queued at the gateway.")
    ] = UNSET
    reserve: Annotated[
        _Share | UnsetType,
        Meta(description="Share of a node's slots and KV that lower tiers leave free for it."),
    ] = UNSET
    preemptible: Annotated[
        bool | UnsetType, Meta(description="Whether a more urgent tier may take its place.")
    ] = UNSET
    price_factor: Annotated[
        Annotated[float, Meta(ge=0)] | UnsetType,
        Meta(description="Price relative to the ordinary tier."),
    ] = UNSET


class NamedTierConfig(TierConfig, frozen=True, kw_only=True):
    """One entry of a whole list of tiers."""

    name: Annotated[_Word, Meta(description="The tier's name, also a value of `X-Priority`.")]


class KeyConfig(Section, frozen=True, kw_only=True):
    """One API key: whose it is and what it may ask for."""

    key: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)],
        Meta(description="The secret, or `env:NAME` to read it from the environment."),
    ]
    tenant: Annotated[_Text, Meta(description="Who is served and counted.")]
    weight: Annotated[
        Annotated[float, Meta(ge=MIN_WEIGHT, le=MAX_WEIGHT)],
        Meta(description="Share among the tenants of a tier, relative to the others."),
    ] = 1.0
    highest_tier: Annotated[
        str, Meta(description="Most urgent tier allowed; with tiers of your own, the second.")
    ] = "normal"
    default_tier: Annotated[
        str, Meta(description="Tier when none is asked; never above `highest_tier`.")
    ] = "normal"
    strict: Annotated[
        bool, Meta(description="Refuse (403) a tier that is not allowed instead of lowering it.")
    ] = False

    def __repr__(self) -> str:
        """Show everything but the secret."""
        return f"KeyConfig(tenant={self.tenant!r}, highest_tier={self.highest_tier!r}, ...)"


class NodeConfig(Section, frozen=True, kw_only=True):
    """One node that the gateway sends work to."""

    name: Annotated[_Label, Meta(description="Name in metrics, logs and `x-headway-node`.")]
    url: Annotated[str, Meta(description="Root of its HTTP server, without `/v1`.")]
    max_inflight: Annotated[
        _Count | None, Meta(description="Most requests in progress there; null: ask the node.")
    ] = None


class Config(Struct, frozen=True, kw_only=True):
    """One installation, checked as a whole."""

    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tiers: Tiers = field(default_factory=Tiers)
    keys: tuple[KeyConfig, ...] = ()
    nodes: tuple[NodeConfig, ...] = ()

    @property
    def open_mode(self) -> bool:
        """Whether anybody on this machine is served, because no key is configured."""
        return not self.keys
