"""Which coefficients explain the times that were measured?

Recursive least squares with forgetting, in plain floats: a handful of coefficients, an update per
measurement, nothing stored. Errors count relative to the time predicted, because what disturbs a
measurement (other load, clock speed) stretches it by a share.
"""

from collections.abc import Sequence
from math import isfinite, sqrt
from operator import mul

FORGETTING = 0.998
"""What a measurement weighs after each further one: half after about 350."""
DOUBT = 10.0
"""Variance of a prior coefficient, over that of a measurement, both as shares of a typical time."""
MIN_INFORMATION = 1e-3
"""What a measurement must add to be taken: nothing is learned from the hundredth equal one."""
COLD = 1.5
"""A first measurement of this many times its prediction is left out: the very first step is cold,
and would pass for a slow machine."""
OUTLIER = 6.0
"""Deviations beyond this many times the expected one are not learned from (a pause, a fault)."""
LASTING = 16
"""So many outliers are a machine that has changed: what was learned is doubted anew."""
LEAK = 0.1
"""How much of an outlier each measurement takes back that is none."""
DEVIATION_STEP = 1.1
"""Factor by which the usual deviation follows each measurement."""
MIN_DEVIATION = 0.01


class CoefficientFit:
    """Coefficients >= 0 of an affine time, corrected by each measurement.

    `typical` are feature values of one large measurement, which only set the scale. The covariance
    stays within what it was at the start: along directions that the measurements never explore
    (chunks that fill a step make features collinear) nothing is forgotten any more.
    Raises ValueError when the prior gives the typical measurement no time.
    """

    def __init__(self, prior: Sequence[float], typical: Sequence[float]) -> None:
        typical_s = sum(c * x for c, x in zip(prior, typical, strict=True))
        if not (isfinite(typical_s) and typical_s > 0):
            raise ValueError(f"a step must take time, got {typical_s} s")
        self._unit = [typical_s / x for x in typical]
        self._shares = [c / unit for c, unit in zip(prior, self._unit, strict=True)]
        self._covariance = self._doubt()
        self._num_outliers = 0.0
        self._deviation = 0.5
        self._is_first = True
        self._smallest_s = 1e-6 * typical_s

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Seconds per unit of each feature."""
        return tuple(share * unit for share, unit in zip(self._shares, self._unit, strict=True))

    def _doubt(self) -> list[list[float]]:
        size = len(self._shares)
        return [[DOUBT * (i == j) for j in range(size)] for i in range(size)]

    def learn(self, features: Sequence[float], actual_s: float) -> bool:
        """Take a measurement; return whether it was learned from."""
        row = [x * unit for x, unit in zip(features, self._unit, strict=True)]
        predicted_s = _dot(self._shares, row)
        is_first, self._is_first = self._is_first, False
        if is_first and actual_s > COLD * predicted_s:
            return False
        scale = 1.0 / max(predicted_s, self._smallest_s)
        residual = (actual_s - predicted_s) * scale
        row = [x * scale for x in row]
        gain = self._gain(row, residual)
        information = _dot(gain, row)
        expected = self._deviation * sqrt(1.0 + max(0.0, information))
        self._deviation = self._follow(abs(residual))
        if abs(residual) > OUTLIER * expected:
            self._num_outliers += 1
            if self._num_outliers >= LASTING:
                self._num_outliers, self._covariance = 0.0, self._doubt()
            return False
        self._num_outliers = max(0.0, self._num_outliers - LEAK)
        if information < MIN_INFORMATION:
            return False
        self._update(gain, information, residual)
        self._project()
        return True

    def _gain(self, row: list[float], residual: float) -> list[float]:
        """Return how far each coefficient moves with a residual.

        One that is 0 and would fall explains nothing of it: `row` is left without it. Otherwise
        the others would stay where they are, ever more certain.
        """
        gain = [sum(map(mul, line, row)) for line in self._covariance]
        for _ in row if min(self._shares) <= 0 else ():
            held = [
                i
                for i, share in enumerate(self._shares)
                if share <= 0 and gain[i] * residual < 0 and row[i] != 0
            ]
            if not held:
                break
            for i in held:
                row[i] = 0.0
            gain = [sum(map(mul, line, row)) for line in self._covariance]
        return gain

    def _follow(self, deviation: float) -> float:
        """Return the median of the deviations, one step nearer to this one."""
        larger = deviation > self._deviation
        factor = DEVIATION_STEP if larger else 1 / DEVIATION_STEP
        return max(MIN_DEVIATION, self._deviation * factor)

    def _update(self, gain: list[float], information: float, residual: float) -> None:
        size = len(gain)
        trace = sum(self._covariance[i][i] for i in range(size))
        forgetting = FORGETTING if trace < DOUBT * size else 1.0
        weight = 1.0 / (forgetting + information)
        self._shares = [
            share + g * weight * residual for share, g in zip(self._shares, gain, strict=True)
        ]
        covariance = self._covariance
        for i, line in enumerate(covariance):
            g = gain[i]
            for j in range(i, size):
                line[j] = covariance[j][i] = (line[j] - g * gain[j] * weight) / forgetting

    def _project(self) -> None:
        """Move to the best coefficients that are not negative.

        Holding one at 0 moves the others by what the measurements say of them together.
        """
        for _ in self._shares:
            below = min(self._shares)
            if below >= 0:
                return
            lowest = self._shares.index(below)
            line = self._covariance[lowest]
            variance = line[lowest]
            if variance <= 0:
                break
            self._shares = [
                share - p * below / variance for share, p in zip(self._shares, line, strict=True)
            ]
            self._shares[lowest] = 0.0
        self._shares = [max(0.0, share) for share in self._shares]


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return float(sum(map(mul, left, right)))
