"""What does the scheduler know of one of vLLM's requests?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from headway.core.due import next_token_due
from headway.core.step import Resident
from headway.core.tier import LatencyTarget
from headway.vllm_plugin.terms import Terms


class SamplingParams(Protocol):
    """What is read of vLLM's sampling parameters."""

    @property
    def extra_args(self) -> Mapping[str, Any] | None:
        """What the client sent as `vllm_xargs`."""


class VllmRequest(Protocol):
    """What is read of vLLM's `Request`."""

    request_id: str
    priority: int
    max_tokens: int
    num_prompt_tokens: int
    num_computed_tokens: int
    """Steps under way included."""
    num_output_placeholders: int
    """Tokens that steps under way are going to add."""
    num_in_flight_tokens: int
    """Tokens that steps under way compute."""
    lora_request: Any
    """Its adapter, or None."""
    status: Any

    @property
    def sampling_params(self) -> SamplingParams | None:
        """How it is sampled."""

    @property
    def mm_features(self) -> Sequence[Any]:
        """Its images, or other inputs with an encoder."""

    @property
    def num_tokens(self) -> int:
        """Known tokens, prompt and output."""


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """A request from its arrival to its end; a `Sequence` of the waiting line. Times are seconds of
    the planner's clock.
    """

    request: VllmRequest
    terms: Terms
    rank: int
    """Its tier's."""
    arrival: int
    arrived_s: float
    key: float
    max_num_tokens: int
    rests_until: float = -inf
    """Not admitted before, having been preempted."""
    preemptions: int = 0
    """How often it gave way to others: not when vLLM cleared its caches."""
    last_step: int = -1
    overtaken: int = 0
    num_lost: int = 0
    """Tokens that were computed and lost with its blocks."""
    num_output_tokens: int = 0
    first_token_s: float = 0.0
    """When its first token was there, and its latest; without output they mean nothing."""
    latest_token_s: float = 0.0

    @property
    def sequence_id(self) -> str:
        """vLLM's id of the request."""
        return self.request.request_id

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.terms.tenant

    @property
    def weight(self) -> float:
        """The tenant's."""
        return self.terms.weight

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return self.request.num_prompt_tokens

    @property
    def num_tokens(self) -> int:
        """Known tokens, those that steps under way are going to draw included."""
        return self.request.num_tokens + self.request.num_output_placeholders

    @property
    def num_computed(self) -> int:
        """Tokens that are computed, or will be by steps under way."""
        return self.request.num_computed_tokens

    @property
    def adapter(self) -> int:
        """The number of its LoRA adapter; 0: it uses none."""
        lora = self.request.lora_request
        return 0 if lora is None else int(lora.lora_int_id)

    @property
    def has_items(self) -> bool:
        """Whether an encoder has to work for its prompt."""
        return len(self.request.mm_features) > 0

    @property
    def is_busy(self) -> bool:
        """Whether a step under way writes its blocks."""
        return self.request.num_in_flight_tokens > 0

    def note_tokens(self, num_tokens: int, now: float) -> None:
        """Take the time at which it was given tokens."""
        if self.num_output_tokens == 0:
            self.first_token_s = now
        self.latest_token_s = now
        self.num_output_tokens += num_tokens

    def due_at(self, target: LatencyTarget) -> float:
        """Return when its next token is due."""
        return next_token_due(
            target, self.first_token_s, self.latest_token_s, self.num_output_tokens
        )

    def resident(self, target: LatencyTarget | None, at: float, max_preemptions: int) -> Resident:
        """Return it as the planner sees it when the step begins at `at`.

        `target` None: no time is promised for its next token.
        """
        request, placeholders = self.request, self.request.num_output_placeholders
        num_tokens, num_computed = request.num_tokens + placeholders, request.num_computed_tokens
        if placeholders and num_computed + 2 - placeholders >= (
            request.num_prompt_tokens + request.max_tokens
        ):
            num_tokens = num_computed  # the step under way draws its last token
        return Resident(
            request.request_id,
            self.rank,
            self.arrival,
            num_tokens,
            num_computed,
            self.max_num_tokens,
            self.last_step,
            self.preemptions >= max_preemptions,
            inf if target is None else self.due_at(target) - at,
            request.num_in_flight_tokens > 0,  # `is_busy`, which costs a call each
        )
