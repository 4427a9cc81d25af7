"""How long is the next prompt, and how long its answer?"""

from collections.abc import Callable
from math import exp, log, sqrt
from pathlib import Path
from random import Random
from statistics import NormalDist

from headway.sim.scenario import EmpiricalLength, FixedLength, Length, LognormalLength
from headway.sim.trace import TraceRow, read_trace

Draw = Callable[[Random], int]
_Z99 = NormalDist().inv_cdf(0.99)


def draw_of(length: Length, pick: Callable[[TraceRow], int]) -> Draw:
    """Return what draws lengths in tokens; `pick` says which of a trace's counts is meant."""
    if isinstance(length, FixedLength):
        tokens = length.tokens
        return lambda rng: tokens
    if isinstance(length, LognormalLength):
        return _lognormal(length)
    if isinstance(length, EmpiricalLength):
        counts = [pick(row) for row in read_trace(Path(length.trace), length.divisor)]
        return lambda rng: counts[int(rng.random() * len(counts))]
    low, high = length.low, length.high
    return lambda rng: low + int(rng.random() * (high - low + 1))


def _lognormal(length: LognormalLength) -> Draw:
    mu = log(length.p50)
    if length.p99 is not None:
        sigma = (log(length.p99) - mu) / _Z99
    else:
        assert length.mean is not None, "checked when the scenario was read"
        sigma = sqrt(2 * (log(length.mean) - mu))
    low, high = length.low, length.high

    def draw(rng: Random) -> int:
        return min(high, max(low, round(exp(rng.gauss(mu, sigma)))))

    return draw
