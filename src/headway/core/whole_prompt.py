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
    for rank in () if limits.enable_chunked_prefill else step.owed:
        debt = step.debts[rank] if step.debts else inf
        most = limits.max_num_batched_tokens if may_exceed else draft.budget.left
        for candidate in islice(step.waiting[rank].in_order(), limits.lookahead):
            match = draft.find_match(candidate)
            num_left = candidate.num_tokens - match.num_tokens
            if num_left > most or candidate.sequence_id in draft.items:
                continue
            if rank > 0 and num_left <= debt:
                yield candidate, match
                may_exceed = may_exceed and candidate.sequence_id not in draft.items
            break
