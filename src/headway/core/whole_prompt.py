"""Whose prompt is computed first where prompts are not cut?

Without chunking a step computes one prompt, or several that fit whole. A floor cannot have a share
of such a step; it saves up until it covers a prompt, which then goes before those of all tiers.
"""

from collections.abc import Iterator
from math import inf

from headway.core.draft import Draft
from headway.core.step import Candidate, Match, StepInput, StepLimits


def paid_by_floors(
    step: StepInput, limits: StepLimits, draft: Draft
) -> Iterator[tuple[Candidate, Match]]:
    """Yield the first candidates of tiers whose floors owe them their prompts, with what is cached.

    One that fits into no step is owed as soon as a full step is. With chunking: nobody.
    """
    full, may_exceed = limits.max_num_batched_tokens, limits.may_exceed_tokens
    for rank in () if limits.enable_chunked_prefill else step.owed:
        first = next(step.waiting[rank].in_order(), None)
        if first is None or first.sequence_id in draft.items:
            continue
        match = draft.find_match(first)
        num_left = first.num_tokens - match.num_tokens
        is_owed = min(num_left, full) <= (step.debts[rank] if step.debts else inf)
        if is_owed and (may_exceed or num_left <= draft.budget.left):
            yield first, match
            may_exceed = False
