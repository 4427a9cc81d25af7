"""What is known of one sequence while it is in the engine?"""

from collections.abc import MutableSequence
from dataclasses import dataclass, field

from headway.core.request import RequestState
from headway.engine.request import EngineRequest, FinishReason
from headway.kv.prefix_cache import PrefixMatch


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One of the n answers to a request: its tokens, and how far they are computed."""

    sequence_id: str
    request: EngineRequest
    index: int
    rank: int
    """As it is scheduled; first come, first served knows one rank only."""
    arrival: int
    """Position in the order of arrival, unique."""
    key: float
    """Static order inside the tenant; the smallest goes first."""
    seed: int
    max_tokens: int
    token_ids: MutableSequence[int]
    """Prompt, then output. Only ever appended to."""
    arrived_s: float = 0.0
    admitted_s: float | None = None
    """When it first got blocks, on the clock of `arrived_s`."""
    first_token_s: float = 0.0
    """When its first token was there, and its latest; without output they mean nothing."""
    latest_token_s: float = 0.0
    state: RequestState = RequestState.WAITING
    num_computed: int = 0
    last_step: int = -1
    preemptions: int = 0
    overtaken: int = 0
    num_cached: int = 0
    """Prompt tokens that the prefix cache spared at the first admission."""
    num_prompt_tokens: int = field(init=False)
    """Length of the prompt; kept, because every step asks for it, as for the next."""
    tenant: str = field(init=False)
    """Whose it is."""
    weight: float = field(init=False)
    """The tenant's."""
    max_num_tokens: int = field(init=False)
    """Most tokens that need KV: the last one generated never does."""
    finish_reason: FinishReason | None = None
    known_match: PrefixMatch | None = field(default=None, repr=False)
    """The latest answer of the prefix cache, so that nothing is hashed twice."""

    def __post_init__(self) -> None:
        """Count the prompt, and keep what every step asks for."""
        self.tenant, self.weight = self.request.tenant, self.request.weight
        self.num_prompt_tokens = len(self.request.prompt_token_ids)
        self.max_num_tokens = self.num_prompt_tokens + self.max_tokens - 1

    @property
    def num_tokens(self) -> int:
        """Known tokens, prompt and output."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def decodes(self) -> bool:
        """Whether all it needs is the next token after one that it drew."""
        return self.num_output_tokens > 0 and len(self.token_ids) - self.num_computed == 1

    @property
    def queue_s(self) -> float:
        """Seconds from arrival to the first admission; 0 while it waits."""
        return 0.0 if self.admitted_s is None else self.admitted_s - self.arrived_s

    @property
    def prompt_is_computed(self) -> bool:
        """Whether a sibling can start from this sequence's blocks."""
        return self.num_computed >= self.num_prompt_tokens

    @property
    def namespace(self) -> str:
        """Who shares prefixes with whom; the length keeps tenant and salt apart (G11)."""
        request = self.request
        return f"{len(request.tenant)}:{request.tenant}{request.cache_salt}"


def stop_token_ids(sequence: Sequence, eos_token_ids: frozenset[int]) -> frozenset[int]:
    """Return the tokens that end this sequence."""
    params = sequence.request.params
    own = frozenset(params.stop_token_ids)
    return own if params.ignore_eos else own | eos_token_ids


def finish_reason(sequence: Sequence, eos_token_ids: frozenset[int]) -> FinishReason | None:
    """Return why the sequence ends with its newest token, or None. Knows no stop strings."""
    params, token_ids = sequence.request.params, sequence.token_ids
    num_output_tokens, last = len(token_ids) - sequence.num_prompt_tokens, token_ids[-1]
    stops = last in params.stop_token_ids or (last in eos_token_ids and not params.ignore_eos)
    if stops and num_output_tokens >= params.min_tokens:
        return FinishReason.STOP
    if num_output_tokens >= sequence.max_tokens:
        return FinishReason.LENGTH
    return None
