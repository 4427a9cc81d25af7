"""What can a scenario say?

Every key of a scenario file is a field here, with its range; units are in the names. A file leaves
out what it does not care about. Ranges end where a number can only be a mistake, or where a run
would not end: beyond them floats overflow, or nothing holds what would have to be written down.
"""

from typing import Annotated

from msgspec import Meta, Struct, field

from headway.config.schema import Section
from headway.core.service import MAX_WEIGHT, MIN_WEIGHT
from headway.core.tier import Tiers

_Name = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
_Text = Annotated[str, Meta(min_length=1, max_length=500)]
MOST = 1_000_000_000
"""Of anything that is counted or measured: requests per second, tokens, tenants, seconds."""
LEAST = 1e-9
"""Of what must not be 0: smaller rates and lengths of time vanish when they are multiplied."""
LONGEST_RUN_S = 31_536_000
"""A year. Each virtual second is written down, in about a kilobyte."""
MOST_CALLERS = 1_000_000
"""Of one closed loop: each has a generator of its own, of some kilobytes."""
MOST_SEED = 2**63 - 1
"""The largest that the report's JSON holds."""

_Above0 = Annotated[float, Meta(ge=LEAST, le=MOST)]
_AtLeast0 = Annotated[float, Meta(ge=0, le=MOST)]
_RunSeconds = Annotated[float, Meta(ge=0, le=LONGEST_RUN_S)]
_Count = Annotated[int, Meta(ge=1, le=MOST)]
_Share = Annotated[float, Meta(ge=0, le=1)]
_Factor = Annotated[float, Meta(ge=1e-6, le=1e6)]
_Sigma = Annotated[float, Meta(ge=0, le=3)]
"""Of the logarithm of a factor of mean 1: with 3, half of the factors are below 0.011."""


class FixedLength(Section, frozen=True, kw_only=True):
    """Always the same."""

    tokens: _Count


class UniformLength(Section, frozen=True, kw_only=True):
    """Any whole number from `low` to `high`, each as likely."""

    low: _Count
    high: _Count


class LognormalLength(Section, frozen=True, kw_only=True):
    """Log-normal by its median and either its mean or its 99th percentile."""

    p50: _Above0
    mean: _Above0 | None = None
    p99: _Above0 | None = None
    low: _Count = 1
    high: _Count = MOST


class EmpiricalLength(Section, frozen=True, kw_only=True):
    """Drawn from the rows of a trace, each row as likely."""

    trace: _Text
    divisor: _Factor = 1.0


Length = FixedLength | UniformLength | LognormalLength | EmpiricalLength
LENGTHS: dict[str, type[Section]] = {
    "fixed": FixedLength,
    "uniform": UniformLength,
    "lognormal": LognormalLength,
    "empirical": EmpiricalLength,
}


class PoissonArrivals(Section, frozen=True, kw_only=True):
    """Independent arrivals; with `cv` not 1 gaps are gamma distributed: above 1 in bursts."""

    rate: _Above0
    """Requests per second."""
    cv: Annotated[float, Meta(ge=1e-3, le=100)] = 1.0
    """Standard deviation of the gaps as a multiple of their mean."""


class ClosedArrivals(Section, frozen=True, kw_only=True):
    """Callers that each send their next request once the last was answered."""

    callers: Annotated[int, Meta(ge=1, le=MOST_CALLERS)]
    think_s: _AtLeast0 = 0.0
    """Mean pause before the next request, exponentially distributed."""


class BacklogArrivals(Section, frozen=True, kw_only=True):
    """All at once, at the stream's start."""

    count: _Count


class StepsArrivals(Section, frozen=True, kw_only=True):
    """Poisson at a rate that jumps: `rates` are pairs of a time and the rate from then on."""

    rates: Annotated[tuple[tuple[_AtLeast0, _AtLeast0], ...], Meta(min_length=1)]


class DiurnalArrivals(Section, frozen=True, kw_only=True):
    """Poisson at the rate of a day: lowest at its start, highest at its middle."""

    mean_rate: _Above0
    """Requests per second over a working day."""
    amplitude: _Share = 0.6
    """How far the rate rises above the mean and falls below it."""
    day_s: _Above0 = 86400.0
    """Virtual seconds that stand for one day."""
    weekend: _Share = 1.0
    """Rate of each sixth and seventh day as a share of a working day's."""


class TraceArrivals(Section, frozen=True, kw_only=True):
    """The rows of a CSV file, with their lengths, and their tenants and tiers where it has them."""

    file: _Text
    from_s: _AtLeast0 = 0.0
    """Where in the trace the stream begins; earlier rows are left out."""
    rate_factor: _Factor = 1.0
    """Arrival times are divided by it."""
    token_divisor: _Factor = 1.0
    """Prompt and output tokens are divided by it."""


Arrivals = (
    PoissonArrivals
    | ClosedArrivals
    | BacklogArrivals
    | StepsArrivals
    | DiurnalArrivals
    | TraceArrivals
)
ARRIVALS: dict[str, type[Section]] = {
    "poisson": PoissonArrivals,
    "closed": ClosedArrivals,
    "backlog": BacklogArrivals,
    "steps": StepsArrivals,
    "diurnal": DiurnalArrivals,
    "trace": TraceArrivals,
}


class PrefixConfig(Section, frozen=True, kw_only=True):
    """Prompts of a tenant begin with one of `groups` shared prefixes, as agents' do."""

    groups: _Count
    tokens: _Count


class StreamHead(Section, frozen=True, kw_only=True):
    """Who sends, at which tier, when."""

    name: _Name
    tier: str
    tenant: _Name | None = None
    """Name of the tenant, or, with several, the start of their names; null: the stream's."""
    num_tenants: _Count = 1
    """Requests are spread evenly at random over so many tenants."""
    start_s: _AtLeast0 = 0.0
    end_s: _Above0 | None = None
    """No arrival from then on; null: the scenario's end."""
    max_tokens: _Count = 4096
    """What clients say they want at most; longer answers are cut off there."""
    deadline_s: _Above0 | None = None
    """Seconds after its arrival at which nobody wants the answer any more."""
    cancel_share: _Share = 0.0
    """Share of the clients that leave before the end."""
    cancel_after_s: Annotated[float, Meta(ge=1e-3, le=MOST)] = 1.0
    """Longest time after which one of those leaves; uniform from 0."""


class StreamConfig(StreamHead, frozen=True, kw_only=True):
    """One kind of traffic: who sends what, at which tier, when."""

    arrivals: Arrivals
    prompt_tokens: Length = FixedLength(tokens=256)
    output_tokens: Length = FixedLength(tokens=64)
    prefix: PrefixConfig | None = None


class NodesConfig(Section, frozen=True, kw_only=True):
    """The engines: how many, how large and how fast."""

    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    max_num_seqs: _Count = 256
    max_num_batched_tokens: _Count = 2048
    num_blocks: _Count = 4096
    block_size: Annotated[int, Meta(ge=1, le=256)] = 16
    enable_prefix_caching: bool = True
    cost_model: str | dict[str, float] = "a100-llama3-8b"
    """A name, a file that `headway bench fit` wrote, or the coefficients themselves."""
    noise: _Sigma = 0.05
    """Sigma of the log-normal factor on each step's time."""
    spike_probability: _Share = 0.001
    spike_factor: Annotated[float, Meta(ge=1, le=1e6)] = 5.0
    max_inflight: _Count | None = None
    """Most requests that the gateway keeps at one node; null: what the node reports, or learns."""
    first_limit: _Count | None = None
    """Where the gateway's limit of a node that reports nothing starts; null: as it always does."""
    keep_targets: bool = True
    """Whether headway's engine keeps the tiers' targets as configured, unless a step would then be
    mostly what it costs empty; false: it stretches them on a slow machine, as the embedded engine
    does."""
    predictor_error: _Factor = 1.0
    """Factor on the step times that the engine's predictor learns from; 1 is the truth."""
    retry_s: _AtLeast0 = 1.0
    """How long after a dead node is well again the gateway notices."""


class GatewayOptions(Section, frozen=True, kw_only=True):
    """How the gateway is set, and how wrong it is about lengths."""

    adaptive_limits: bool = True
    """Whether nodes' limits follow what they show; otherwise they stay as they begin."""
    output_guess_factor: _Factor = 1.0
    """Factor on the expected output tokens."""
    output_guess_sigma: _Sigma = 0.0
    """Sigma of a further log-normal factor, drawn for each request."""


class TenantConfig(Section, frozen=True, kw_only=True):
    """A tenant that is not like the others."""

    name: _Name
    weight: Annotated[float, Meta(ge=MIN_WEIGHT, le=MAX_WEIGHT)] = 1.0


class NodeDown(Section, frozen=True, kw_only=True):
    """A node dies with all that it has, and may come back empty."""

    node: Annotated[int, Meta(ge=0)]
    at_s: _AtLeast0
    until_s: _Above0 | None = None


class NodeSlow(Section, frozen=True, kw_only=True):
    """A node's steps take `factor` times as long for a while."""

    node: Annotated[int, Meta(ge=0)]
    at_s: _AtLeast0
    until_s: _Above0
    factor: _Factor


NodeEvent = NodeDown | NodeSlow
EVENTS: dict[str, type[Section]] = {"node-down": NodeDown, "node-slow": NodeSlow}


class Scenario(Struct, frozen=True, kw_only=True):
    """One experiment, checked as a whole."""

    name: str
    shows: str = ""
    """What it is for, in a sentence."""
    duration_s: float
    """Arrivals stop then; what is left is served for `drain_s` at most."""
    warmup_s: float = 0.0
    """Requests that arrive earlier are served and not measured."""
    drain_s: float = 60.0
    seed: int = 0
    load: float = 1.0
    """Factor on the rates of all streams that are no backlog and no closed loop."""
    nodes: NodesConfig = field(default_factory=NodesConfig)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    tiers: Tiers = field(default_factory=Tiers)
    policy: dict[str, float] = field(default_factory=dict)
    tenants: tuple[TenantConfig, ...] = ()
    streams: tuple[StreamConfig, ...] = ()
    events: tuple[NodeEvent, ...] = ()


class ScenarioHead(Section, frozen=True, kw_only=True):
    """The keys above all sections."""

    name: _Name
    shows: _Text = "not said"
    duration_s: Annotated[float, Meta(ge=LEAST, le=LONGEST_RUN_S)]
    warmup_s: _RunSeconds = 0.0
    drain_s: _RunSeconds = 60.0
    seed: Annotated[int, Meta(ge=0, le=MOST_SEED)] = 0
    load: _Factor = 1.0
