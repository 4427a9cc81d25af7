"""What does the step planner look at, and what does it answer?

A *resident* holds blocks and a slot, a *candidate* waits for both. Prefill and decode are one: of
the `num_tokens` known tokens of a sequence `num_computed` have their KV; the others are its work.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple, Protocol

from headway.core.predictor import StepCoefficients, StepFeatures
from headway.core.tier import LatencyTarget


class Resident(NamedTuple):
    """A sequence that holds blocks. A tuple, because a step makes hundreds."""

    sequence_id: str
    rank: int
    arrival: int
    """Position in the order of arrival; the smaller is the older. No two are equal."""
    num_tokens: int
    num_computed: int
    max_num_tokens: int
    """Most tokens it may ever hold."""
    last_step: int = -1
    """The latest step that computed something of it."""
    protected: bool = False
    """Preempted as often as allowed: nobody takes its blocks, and all it may need are kept."""
    due_s: float = inf
    """Seconds until its next token is due (`due.py`), below 0 when it is late; only of a decode."""
    busy: bool = False
    """A step under way writes its blocks: it cannot give way before it is done."""

    @property
    def num_left(self) -> int:
        """Known tokens still to compute; 1 is a decode."""
        return self.num_tokens - self.num_computed


class Candidate(NamedTuple):
    """A sequence that waits to be admitted, for the first time or after a preemption."""

    sequence_id: str
    rank: int
    arrival: int
    num_tokens: int
    max_num_tokens: int
    protected: bool = False
    overtaken: int = 0
    """How often a request behind it was admitted while this one did not fit."""
    was_preempted: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """What a candidate need not compute."""

    num_tokens: int = 0
    num_evictable: int = 0
    """Matched blocks without a holder: pinning them uses up what is available."""
    parent_id: str | None = None
    """The resident sibling that the tokens are forked from; None: the prefix cache."""
    blocks: tuple[int, ...] = ()
    """The matched blocks of the prefix cache."""


class Memory(Protocol):
    """Answers about KV blocks as they stand before the step; asking changes nothing."""

    @property
    def block_size(self) -> int:
        """Tokens in one block."""

    @property
    def num_blocks(self) -> int:
        """All blocks, held or not."""

    @property
    def num_available(self) -> int:
        """Blocks that can be taken now: free, or cached without a holder."""

    def lacking(self, residents: Collection[Resident]) -> dict[str, int]:
        """Return by id how many blocks each must take to hold its `protection.target`, if any."""

    def releasable(self, sequence_ids: Collection[str], pinned: Collection[int]) -> int:
        """Return how many blocks become available when these residents are preempted together.

        Not those in `pinned`, which candidates that matched them are about to hold.
        """

    def match(self, sequence_id: str) -> Match:
        """Return what the candidate finds already computed, at most all its tokens but one."""


class Waiting(Protocol):
    """The candidates of one tier in the order in which they are to be admitted."""

    def __len__(self) -> int:
        """Return how many wait."""

    def in_order(self) -> Iterator[Candidate]:
        """Yield candidates lazily. One that was yielded and not admitted keeps its place."""


@dataclass(frozen=True, slots=True)
class TierLimits:
    """What one tier may claim in a step; the position in the list is its rank."""

    floor: float = 0.0
    """Share of the service that is guaranteed while it is backlogged."""
    reserved_slots: int = 0
    """Slots that lower tiers leave free for this one, the ones it uses included."""
    reserved_blocks: int = 0
    """Blocks that admissions of lower tiers leave available."""
    preemptible: bool = True
    target: LatencyTarget = field(default_factory=LatencyTarget)
    recent_s: float = inf
    """Longest step while a request of this tier may arrive, which then waits for its end."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What a step may hold."""

    max_num_seqs: int
    max_num_batched_tokens: int
    tiers: tuple[TierLimits, ...]
    enable_chunked_prefill: bool = True
    may_exceed_tokens: bool = True
    """Whether the only whole prompt may be one that does not fit; else each fits into a step."""
    min_step_s: float = 0.0
    """No due time makes steps shorter; beside prompts of rank 0 lower tiers fill one to this."""
    watermark_blocks: int = 0
    """Blocks that an admission beside others leaves available."""
    max_overtakes: int = 8
    """How often one that does not fit may be overtaken before all behind it wait."""
    lookahead: int = 8
    """How many candidates of a tier that do not fit are looked past in one step."""


@dataclass(frozen=True, slots=True)
class StepInput:
    """What the planner sees: everything, as it stands before the step."""

    residents: tuple[Resident, ...]
    waiting: tuple[Waiting, ...]
    """By rank."""
    memory: Memory
    owed: tuple[int, ...] = ()
    """Ranks behind their floor, the most owed first."""
    debts: tuple[float, ...] = ()
    """By rank, how much more than the least is owed; left out: what is owed is paid at once."""
    recent: frozenset[int] = frozenset()
    """Ranks of which a request was here a short while ago."""
    demand: tuple[int, int] | None = None
    """Slots and blocks that rank 0 may ask for soon: no more of its reserve is kept free."""
    cost: StepCoefficients | None = None
    """How long steps take; None: only tokens are budgeted."""
    safety: float = 1.0
    """What a predicted time is multiplied by where it must not be exceeded."""


class Wait(StrEnum):
    """Why a sequence with work is not in the step."""

    TOKENS = "tokens"
    """The step's tokens or time went to others; a resident is parked."""
    BLOCKS = "blocks"
    SLOTS = "slots"
    HELD = "held"
    """One that does not fit was overtaken as often as allowed; this one would be in its way."""


class Item(NamedTuple):
    """Tokens of one sequence that the step computes."""

    sequence_id: str
    num_tokens: int
    start: int
    """Tokens that are there before: computed, or found in the prefix cache or at `parent_id`."""
    is_admission: bool = False
    parent_id: str | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What the step does: preempt, admit, compute; in this order."""

    items: tuple[Item, ...]
    preempted: tuple[str, ...]
    features: StepFeatures
    budget_s: float = inf
    """Seconds that the step may take; infinite when nobody's target bounds it."""
    waits: dict[str, Wait] = field(default_factory=dict)
    """By sequence id: residents that sit out, and the candidates that were looked at."""
    overtaken: dict[str, int] = field(default_factory=dict)
    """By sequence id: how often it was overtaken in this step."""
