"""How long will this step take?

A step's time is affine in a few counts of what it computes: reading the weights, the tokens that go
through them, and the attention of each token to those before it (QoServe, ASPLOS'26; ProServe,
arXiv 2512.12928, reaches 4.5 % mean error with as many).
"""

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import astuple, dataclass
from math import exp, inf, isfinite, log
from operator import add
from typing import NamedTuple

from headway.core.step_fit import CoefficientFit

TYPICAL_STEP = (1.0, 256.0, 32.0, 2.0, 16_384.0, 2_048.0, 131_072.0)
"""The features of a large step, in the order of the coefficients: they only scale the fit."""
LATE_RATE = 0.02
"""Share of steps that may take longer than the guarded prediction."""
SAFETY_STEP = 0.05
"""How fast the safety factor follows, in its logarithm per step."""
START_SAFETY, MAX_SAFETY = 1.2, 2.0
MAX_LOG_SAFETY = log(MAX_SAFETY)


class StepFeatures(NamedTuple):
    """What a step computes, as far as its time depends on it."""

    num_tokens: int = 0
    num_decodes: int = 0
    num_prefills: int = 0
    decode_context: int = 0
    """Tokens that the decodes attend to, over all of them."""
    prefill_context: int = 0
    """Tokens that were computed before, over all prefills."""
    prefill_work: float = 0.0
    """Pairs of a prefilled token and one that it attends to: n * (context + n / 2) each."""

    @classmethod
    def of(cls, slices: Collection[tuple[int, int]]) -> "StepFeatures":
        """Return the features of a step of these (tokens, tokens computed before)."""
        decodes = [context for count, context in slices if count == 1]
        num_decodes, in_prefills, prefill_context, work = len(decodes), 0, 0, 0.0
        for count, context in slices if num_decodes < len(slices) else ():
            if count != 1:
                in_prefills += count
                prefill_context += context
                work += count * (context + count / 2)
        num_prefills, decode_context = len(slices) - num_decodes, sum(decodes)
        num_tokens = num_decodes + in_prefills
        return cls(num_tokens, num_decodes, num_prefills, decode_context, prefill_context, work)

    def plus(self, other: "StepFeatures") -> "StepFeatures":
        """Return the features of both together."""
        return StepFeatures(*map(add, self, other))

    def plus_decode(self, context: int) -> "StepFeatures":
        """Return the features with one more decode after `context` tokens."""
        return self.plus(StepFeatures.of([(1, context)]))

    def plus_prefill(self, num_tokens: int, context: int) -> "StepFeatures":
        """Return the features with `num_tokens` more of a prompt of which `context` are done."""
        work = num_tokens * (context + num_tokens / 2)
        return self.plus(StepFeatures(num_tokens, 0, 1, 0, context, work))

    @property
    def row(self) -> tuple[float, ...]:
        """The values in the order of the coefficients, 1 for the base."""
        return (1.0, *self)


@dataclass(frozen=True, slots=True)
class StepCoefficients:
    """Seconds per unit of each feature. Raises ValueError for one that is negative."""

    base_s: float
    token_s: float = 0.0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    decode_context_s: float = 0.0
    prefill_context_s: float = 0.0
    prefill_work_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would make a step shorter by computing more."""
        wrong = [name for name in self.__slots__ if not 0 <= getattr(self, name) < inf]
        if wrong:
            value = getattr(self, wrong[0])
            raise ValueError(f"{wrong[0]} must be a number of at least 0, got {value}")

    def time_s(self, features: StepFeatures) -> float:
        """Return the seconds that a step takes."""
        return (
            self.base_s
            + self.token_s * features.num_tokens
            + self.decode_s * features.num_decodes
            + self.prefill_s * features.num_prefills
            + self.decode_context_s * features.decode_context
            + self.prefill_context_s * features.prefill_context
            + self.prefill_work_s * features.prefill_work
        )

    def slice_s(self, num_tokens: int, context: int, *, planned: int = 0) -> float:
        """Return the seconds that `num_tokens` of a sequence add after `context` computed ones.

        The last `planned` of the context are in the step already. One token counts as a decode
        until others join it: then the step holds a prefill in its place.
        """
        if planned:
            begin = context - planned
            return self.slice_s(planned + num_tokens, begin) - self.slice_s(planned, begin)
        if num_tokens == 1:
            return self.token_s + self.decode_s + self.decode_context_s * context
        seconds = num_tokens * (self.token_s + self.prefill_work_s * (context + num_tokens / 2))
        return seconds + self.prefill_s + self.prefill_context_s * context

    def tokens_within(self, seconds: float, context: int, most: int, *, planned: int = 0) -> int:
        """Return the largest n up to `most` with `slice_s(n, context) <= seconds`; 0: none."""

        def slice_s(n: int) -> float:
            return self.slice_s(n, context, planned=planned)

        if most <= 0 or slice_s(most) <= seconds:
            return max(0, most)
        # A single token may be dearer than two: it counts as a decode.
        fitting = bisect_right(range(2, most + 1), seconds, key=slice_s)
        return fitting + 1 if fitting else int(slice_s(1) <= seconds)


class StepTimePredictor:
    """Predicts steps, and learns from each. Deterministic; about 50 microseconds a step.

    The safety factor follows the quantile of actual over predicted time of which `LATE_RATE` of
    all steps are beyond, whatever the errors are like (adaptive conformal inference, Gibbs and
    Candes, 2021). Raises ValueError for a prior by which steps take no time.
    """

    def __init__(self, prior: StepCoefficients) -> None:
        self._fit = CoefficientFit(astuple(prior), TYPICAL_STEP)
        self.coefficients = prior
        self._log_safety = log(START_SAFETY)

    @property
    def safety(self) -> float:
        """What predictions are multiplied by to be exceeded rarely: 1 to `MAX_SAFETY`."""
        return exp(self._log_safety)

    def predict(self, features: StepFeatures) -> float:
        """Return the seconds that the step will take, on average."""
        return self.coefficients.time_s(features)

    def guarded(self, features: StepFeatures) -> float:
        """Return the seconds that only `LATE_RATE` of such steps exceed."""
        return self.safety * self.predict(features)

    def observe(self, features: StepFeatures, actual_s: float) -> None:
        """Learn from a step. Times that are no time (0, not finite) are ignored."""
        if not (isfinite(actual_s) and actual_s > 0):
            return
        late = actual_s > self.guarded(features)
        log_safety = self._log_safety + SAFETY_STEP * (late - LATE_RATE)
        self._log_safety = min(max(log_safety, 0.0), MAX_LOG_SAFETY)
        if self._fit.learn(features.row, actual_s):
            self.coefficients = StepCoefficients(*self._fit.coefficients)
