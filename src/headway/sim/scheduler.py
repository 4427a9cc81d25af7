"""What decides the steps of a simulated engine?

A policy implements `StepScheduler`. The node asks `plan` for a step, takes the time of its features
from the cost model, and tells `done` when it is over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from headway.core.predictor import StepFeatures
from headway.core.tier import Tiers
from headway.sim.cost_model import A100_LLAMA3_8B


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRequest:
    """A request as an engine gets it. Times are virtual seconds, lengths are tokens."""

    request_id: str
    rank: int
    tenant: str = ""
    weight: float = 1.0
    arrival: float
    """When its client sent it, which is before the engine got it."""
    num_prompt_tokens: int
    num_output_tokens: int
    """How many it will generate; a policy looks at it only to end the sequence."""
    max_tokens: int
    """How many it says it may generate; never below `num_output_tokens`."""
    deadline: float | None = None
    prefix_id: str = ""
    """Requests of one tenant with the same id begin with the same `num_prefix_tokens` tokens."""
    num_prefix_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """The room of one engine."""

    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int
    block_size: int = 16
    enable_prefix_caching: bool = True


class SimStep(NamedTuple):
    """What one step computes."""

    features: StepFeatures
    num_tokens: tuple[int, ...]
    """Tokens computed for each rank."""
    token: object = None
    """Whatever the policy wants back in `done`."""
    budget_tokens: int = 0
    """Most tokens that the policy let this step have."""
    predicted_s: float | None = None
    """How long the policy thinks it takes; None: it does not predict."""
    budget_s: float | None = None
    """How long it may be predicted to take; None: no bound in time."""
    is_repeat: bool = False
    """One more token for each that runs, and nothing else; see `Repeats`."""
    safety: float = 1.0
    """How many times as long it may really take before it is late."""


class Emission(NamedTuple):
    """One token that a step brought a request; of a step that `is_repeat`, only the last ones."""

    request_id: str
    finished: bool
    num_cached_tokens: int = 0
    """With the last token: how many of the prompt's tokens the prefix cache spared."""
    num_preemptions: int = 0
    """With the last token: how often the request lost its blocks."""


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """The numbers of an engine as they are now; the last three count up from the start."""

    running: tuple[int, ...]
    """Sequences that hold blocks, by rank."""
    waiting: tuple[int, ...]
    """Sequences that hold none, by rank; the preempted among them."""
    kv_used: float
    """Share of the blocks that somebody holds."""
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0
    """Tokens computed a second time, because a preemption had lost them."""
    num_parked: int = 0
    """Turns that a resident had to skip."""


class StepScheduler(Protocol):
    """The books and the policy of one engine. `now` never goes back."""

    def add(self, request: SimRequest, now: float) -> None:
        """Let a request wait. It fits the engine: prompt and output are within its blocks."""

    def abort(self, request_id: str) -> None:
        """Forget a request and let go of all it holds. An unknown id means nothing."""

    def num_preemptions(self, request_id: str) -> int:
        """Return how often a request that is here has lost its blocks."""

    def plan(self, now: float) -> SimStep | None:
        """Return the next step, begun at once; None: there is nothing to do."""

    def done(self, step: SimStep, now: float, step_s: float) -> Sequence[Emission]:
        """Book a step that took `step_s` and ended `now`; return the tokens it brought.

        A request aborted meanwhile brings none.
        """

    def stats(self) -> SchedulerStats:
        """Return the numbers as they are now."""

    def check_integrity(self) -> None:
        """Raise AssertionError that names what is off; when nobody is left, also what is held."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Steps in which each of these requests got one token, and what else it did was nothing."""

    request_ids: tuple[str, ...]
    ends: tuple[float, ...]
    """When each of the steps ended."""


@runtime_checkable
class Repeats(Protocol):
    """A scheduler that books equal steps together.

    Of a step that `is_repeat`, `done` returns whom it ended; what such steps brought is told by
    `take_repeated`, after any other call that needs the books: `add`, `abort`, `stats`, another
    step. Nobody has to wait for them to know what else happens.
    """

    def catch_up(self) -> None:
        """Book what is still to be booked."""

    def take_repeated(self) -> Repeated | None:
        """Return, once, what was booked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetup:
    """What a policy is made from."""

    shape: EngineShape
    tiers: Tiers = field(default_factory=Tiers)
    keep_targets: bool = True
    """Keep the tiers' targets as they are, rather than stretch them on a slow machine."""
    may_repeat: bool = False
    """Whether equal steps may be booked together, as `Repeats` says; the outcome is the same."""
    knobs: dict[str, float] = field(default_factory=dict)
    """The policy's own settings, from the scenario's `[policy]`; every policy ignores others'."""
    measure: Callable[[StepFeatures], float] = A100_LLAMA3_8B.time_s
    """Times one step of an idle engine, in seconds: what an engine may try out at its start."""


SchedulerFactory = Callable[[PolicySetup], StepScheduler]
