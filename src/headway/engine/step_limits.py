"""What may a step hold, given the settings and the machine?"""

from headway.core.step import StepLimits, TierLimits
from headway.core.tier import Tier
from headway.engine.calibration import TierBudget
from headway.engine.options import EngineOptions


def step_limits(
    options: EngineOptions, num_blocks: int, budgets: tuple[TierBudget, ...] | None
) -> StepLimits:
    """Return the planner's limits. `budgets` by rank; None: no latency target bounds a step.

    First come, first served is one tier that reserves, guarantees and promises nothing.
    """
    if options.scheduling_policy == "fcfs":
        tiers: tuple[TierLimits, ...] = (TierLimits(),)
    else:
        tiers = tuple(
            _tier_limits(tier, options, num_blocks, budgets[tier.rank] if budgets else None)
            for tier in options.tiers.all
        )
    return StepLimits(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        tiers=tiers,
        enable_chunked_prefill=options.enable_chunked_prefill,
    )


def _tier_limits(
    tier: Tier, options: EngineOptions, num_blocks: int, budget: TierBudget | None
) -> TierLimits:
    return TierLimits(
        floor=tier.floor,
        reserved_slots=int(tier.reserve * options.max_num_seqs),
        reserved_blocks=int(tier.reserve * num_blocks),
        preemptible=tier.preemptible,
        active_budget=None if budget is None else budget.active_budget,
        recent_budget=None if budget is None else budget.recent_budget,
    )
