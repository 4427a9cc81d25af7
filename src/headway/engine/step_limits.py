"""What may a step hold, given the settings and the machine?"""

from math import inf

from headway.core.step import StepLimits, TierLimits
from headway.core.tier import LatencyTarget, Tier
from headway.engine.calibration import (
    EFFICIENCY_BESIDE_PROMPT,
    FastestSteps,
    TierPromise,
    tier_promises,
)
from headway.engine.options import EngineOptions


def step_limits(
    options: EngineOptions, num_blocks: int, fastest: FastestSteps | None = None
) -> StepLimits:
    """Return the planner's limits on a machine whose steps were measured.

    None: no latency target bounds a step. First come, first served is one tier that reserves,
    guarantees and promises nothing.
    """
    if options.scheduling_policy == "fcfs":
        tiers: tuple[TierLimits, ...] = (TierLimits(),)
    elif fastest is None:
        unbounded = TierPromise(LatencyTarget(), inf)
        tiers = tuple(_tier_limits(t, options, num_blocks, unbounded) for t in options.tiers.all)
    else:
        promises = tier_promises(fastest, options.tiers)
        tiers = tuple(
            _tier_limits(tier, options, num_blocks, promise)
            for tier, promise in zip(options.tiers.all, promises, strict=True)
        )
    return StepLimits(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        tiers=tiers,
        enable_chunked_prefill=options.enable_chunked_prefill,
        min_step_s=0.0 if fastest is None else fastest.efficient_s(EFFICIENCY_BESIDE_PROMPT),
    )


def _tier_limits(
    tier: Tier, options: EngineOptions, num_blocks: int, promise: TierPromise
) -> TierLimits:
    return TierLimits(
        floor=tier.floor,
        reserved_slots=int(tier.reserve * options.max_num_seqs),
        reserved_blocks=int(tier.reserve * num_blocks),
        preemptible=tier.preemptible,
        target=promise.target,
        recent_s=promise.recent_s,
    )
