"""How long will it wait, as far as the queue tells?

What has to be served first over how fast it is served gives a mean; the spread shrinks with the
number of requests ahead (central limit theorem, as in QLM). What experience makes of it is decided
in `calibration.py`.
"""

from math import inf, sqrt
from typing import NamedTuple

from headway.core.drain import DrainRate

P90_DEVIATIONS = 1.2816
"""Standard deviations from the mean to the 90th percentile of a normal distribution."""
COMMON_VARIANCE = 0.01
"""Relative variance that does not average out: the rate itself is known to about a tenth."""
MIN_SHARE = 0.02
"""Least share of the rate reckoned with while more urgent tiers take everything."""


class WaitEstimate(NamedTuple):
    """Seconds in the queue that half, and nine in ten, of such requests do not exceed."""

    p50_s: float
    p90_s: float


Model = tuple[float, float, float, float]
"""The estimate before correction: mean wait in seconds and its relative spread, by priority and
by the floor of the tier; whichever is sooner counts. Without a floor that way takes for ever.
"""


def model_wait(
    drain: DrainRate,
    *,
    own: float,
    above: float,
    arrivals_above: float,
    floor: float,
    floors_below: float,
) -> Model | None:
    """Return the uncorrected estimate; None while the rate is unknown. Rises with what is ahead.

    `own` and `above` are the costs that wait in the own tier ahead of it and in more urgent tiers,
    `arrivals_above` the cost per second that arrives there; `floor` is that of the own tier,
    `floors_below` the sum of those of less urgent tiers that have work waiting.

    Strict priority: the more urgent tiers' backlog and what they still receive meanwhile are served
    first; but the floor of the own tier alone serves what is ahead there, too. Last comes the rest
    of what is in service, until one more place is free.
    """
    rate = drain.rate
    if rate is None:
        return None
    left = max(MIN_SHARE * rate, (1 - floors_below) * rate - arrivals_above)
    mean_s, spread = _way(above + own, left, drain)
    floor_mean_s, floor_spread = (inf, 0.0) if floor <= 0 else _way(own, floor * rate, drain)
    return mean_s, spread, floor_mean_s, floor_spread


def _way(cost: float, rate: float, drain: DrainRate) -> tuple[float, float]:
    mean_cost = drain.mean_cost
    num_ahead = 1.0 + (cost / mean_cost if mean_cost > 0 else 0.0)
    variance = COMMON_VARIANCE + drain.relative_variance / num_ahead
    return (cost + mean_cost) / rate, P90_DEVIATIONS * sqrt(variance)
