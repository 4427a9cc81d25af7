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
    watermark_blocks: int = 0
    """Blocks that an admission beside others leaves available."""
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


def most_tokens(
    scheduled: int, inputs: int, drafts: Sequence[int], slots: int, slots_of_one: int
) -> int:
    """Return how many tokens a plan may have, so that whatever it plans fits with its drafts.

    `scheduled` and `inputs` are vLLM's bounds of a step: of tokens with their drafts, and of those
    with the slots that drafting adds, `slots` in all at most and `slots_of_one` for each request.
    `drafts` are those of each running request. Either all drafts and slots are set aside, or each
    planned token is taken to bring the most that one may; what leaves more is enough.
    """
    beside_all = min(scheduled, inputs - slots) - sum(drafts)
    most = 1 + max(drafts, default=0)
    with_each = min(scheduled // most, inputs // (most + slots_of_one))
    return max(1, beside_all, with_each)


class Computed(NamedTuple):
    """Tokens of one request that a step computes."""

    request: VllmRequest
    num_tokens: int
    start: int
    """Tokens that were computed before."""
    num_drafts: int = 0
    """How many of the tokens are drafts of speculative decoding."""
    is_admission: bool = False
