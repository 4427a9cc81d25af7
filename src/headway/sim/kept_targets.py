"""Which targets does a simulated engine of ours keep?

Those that are configured, as far as its node can keep them at all: a scenario says what is
promised. The embedded engine stretches them further, for the sake of throughput
(`core/promise.py`).
"""

from dataclasses import replace

from headway.core.promise import Pace, tier_limits
from headway.core.step import StepLimits
from headway.core.tier import Tiers

SHARE_OF_PACE = 0.5
"""A step that is late anyway takes at most this share of the tightest time per token, so that it
catches up."""
LEAST_EFFICIENCY = 0.5
"""Targets leave steps that do this share of a full one's tokens per second. Shorter ones are mostly
what a step costs whatever it holds, so that on a node that has become slow streams would keep their
pace and prompts would wait without end."""


def with_kept_targets(limits: StepLimits, tiers: Tiers, pace: Pace, num_blocks: int) -> StepLimits:
    """Return the limits of an engine with the targets of `tiers` at its present `pace`."""
    kept = tier_limits(
        tiers,
        pace.efficient_s(LEAST_EFFICIENCY),
        max_num_seqs=limits.max_num_seqs,
        num_blocks=num_blocks,
    )
    tpots_s = [tier.target.tpot_s for tier in kept if tier.target.tpot_s is not None]
    min_step_s = min([limits.min_step_s, *(SHARE_OF_PACE * tpot_s for tpot_s in tpots_s)])
    return replace(limits, tiers=kept, min_step_s=min_step_s)
