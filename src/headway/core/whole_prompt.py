"""Whose prompt is computed first where prompts are not cut?

Without chunking a step computes one prompt, or several that fit whole. A floor cannot have a share
of such a step; it saves up until it covers a prompt, which then goes before those of all tiers.
"""

from collections.abc import Iterator
from itertools import islice
from math import inf

from headway.core.draft import Draft
from headway.core.step import Candidate, Match, StepInput, StepLimits


def paid_by_floors(
    step: StepInput, limits: StepLimits, draft: Draft, *, may_exceed: bool
) -> Iterator[tuple[Candidate, Match]]:
    """Yield whom floors owe their whole prompt, with what is cached of it. With chunking: nobody.

    That is the first candidate of a tier that fits, if the floor covers its prompt; one that is
    longer than a step has no floor. `may_exceed`: one need not fit beside what is planned.
    """
    if limits.enable_chunked_prefill:
        return
    for rank in filter(None, step.owed):  # prompts of rank 0 go first anyway
        debt = step.debts[rank] if step.debts else inf
        most = limits.max_num_batched_tokens if may_exceed else draft.budget.left
        for candidate in islice(step.waiting[rank].in_order(), limits.lookahead):
            match = draft.find_match(candidate)
            num_left = candidate.num_tokens - match.num_tokens
            if num_left > most or candidate.sequence_id in draft.items:
                continue
            if num_left <= debt:
                yield candidate, match
                may_exceed = may_exceed and candidate.sequence_id not in draft.items
            break


def kept_for_heads(step: StepInput, limits: StepLimits) -> list[int | None]:
    """Return by rank how many tokens its decodes leave to a whole prompt of a more urgent tier.

    Where no step may exceed its tokens it would not fit beside them, in this step and the next.
    None: the tier's floor has saved up as much, and its decodes go first.
    """
    heads = [0] * len(limits.tiers)
    if not (limits.enable_chunked_prefill or limits.may_exceed_tokens):
        for rank, waiting in enumerate(step.waiting):
            for first in islice(waiting.in_order(), 1):
                heads[rank] = first.num_tokens - step.memory.match(first.sequence_id).num_tokens
    kept: list[int | None] = [max(heads[:rank], default=0) for rank in range(len(heads))]
    for rank in step.owed if step.debts else ():
        if 0 < max(heads[:rank], default=0) <= step.debts[rank]:
            kept[rank] = None
    return kept
