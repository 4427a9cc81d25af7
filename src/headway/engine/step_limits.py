"""What may a step hold, given the settings and the machine?"""

from headway.core.promise import Pace, tier_limits
from headway.core.step import StepLimits, TierLimits
from headway.engine.options import EngineOptions


def step_limits(options: EngineOptions, num_blocks: int, pace: Pace | None = None) -> StepLimits:
    """Return the planner's limits on a machine whose steps were measured.

    None: no latency target bounds a step. First come, first served is one tier that reserves,
    guarantees and promises nothing.
    """
    tiers: tuple[TierLimits, ...] = (TierLimits(),)
    if options.scheduling_policy != "fcfs":
        tiers = tier_limits(
            options.tiers,
            None if pace is None else pace.efficient_s(options.efficiency),
            max_num_seqs=options.max_num_seqs,
            num_blocks=num_blocks,
        )
    return StepLimits(
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        tiers=tiers,
        enable_chunked_prefill=options.enable_chunked_prefill,
        min_step_s=0.0 if pace is None else pace.efficient_s(options.min_efficiency),
    )
