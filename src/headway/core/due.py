"""When is the next token of a request due?"""

from math import inf

from headway.core.tier import LatencyTarget

GAP_SHARE = 0.5
"""Share of its longest gap by which a token is due: one step that takes twice its time, or that had
to be begun late, does not break it."""
RELEGATED_AFTER = 1.0
"""A request this many of its own time per token behind holds up nobody's step any more: only its
longest gap still counts."""


def itl_target_s(target: LatencyTarget) -> float:
    """Return how long after a token the next one of a stream that is on time is due, at most.

    Infinite without a target for either.
    """
    tpot_s = inf if target.tpot_s is None else target.tpot_s
    return tpot_s if target.gap_s is None else min(tpot_s, GAP_SHARE * target.gap_s)


def next_token_due(
    target: LatencyTarget, first_s: float, latest_s: float, num_output_tokens: int
) -> float:
    """Return when, on the clock of `first_s`, the next token is due.

    Infinite without a target, and before the first token. `first_s` and `latest_s` are when its
    first and its latest token came; `num_output_tokens` counts both. Token k is due k - 1 times the
    TPOT after the first, and at most `GAP_SHARE` of the gap after the one before it.
    """
    if num_output_tokens == 0:
        return inf
    tpot_s, gap_s = target.tpot_s, target.gap_s
    gap_at = inf if gap_s is None else latest_s + GAP_SHARE * gap_s
    if tpot_s is None:
        return gap_at
    pace_at = first_s + num_output_tokens * tpot_s
    is_relegated = gap_at < inf and latest_s - pace_at > RELEGATED_AFTER * tpot_s
    return gap_at if is_relegated or gap_at < pace_at else pace_at
