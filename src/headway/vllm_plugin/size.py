"""What can one vLLM engine hold, and what do its steps use of it?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.vllm_plugin.entry import VllmRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSize:
    """What one vLLM engine can hold; names as in vLLM."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int
    enable_chunked_prefill: bool = True
    speculates: bool = False
    """Whether decodes may take tokens for drafts, too, of which the plan knows nothing."""
    max_loras: int | None = None
    """LoRA adapters that one step may use; None: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """What one step may use."""

    begins_at: float
    """When the steps under way will have ended."""
    max_num_seqs: int
    max_num_batched_tokens: int
    decodes_only: bool = False
    """Whether vLLM holds all prompts back."""
    sessions: Sequence[VllmRequest] = ()
    """Requests that hold blocks, but are between two inputs."""


class Computed(NamedTuple):
    """Tokens of one request that a step computes."""

    request: VllmRequest
    num_tokens: int
    start: int
    """Tokens that were computed before."""
    num_drafts: int = 0
    """How many of the tokens are drafts of speculative decoding."""
    is_admission: bool = False
