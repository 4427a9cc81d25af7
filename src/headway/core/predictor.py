"""How long will this step take?

A step's time is affine in a few counts of what it computes: reading the weights, the tokens that go
through them, and the attention of each token to those before it (QoServe, ASPLOS'26; ProServe,
arXiv 2512.12928, reaches 4.5 % mean error with as many).
"""

from dataclasses import dataclass, fields, replace
from math import isfinite


@dataclass(frozen=True, slots=True)
class StepFeatures:
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

    def plus_decode(self, context: int) -> "StepFeatures":
        """Return the features with one more decode after `context` tokens."""
        return replace(
            self,
            num_tokens=self.num_tokens + 1,
            num_decodes=self.num_decodes + 1,
            decode_context=self.decode_context + context,
        )

    def plus_prefill(self, num_tokens: int, context: int) -> "StepFeatures":
        """Return the features with `num_tokens` more of a prompt of which `context` are done."""
        return replace(
            self,
            num_tokens=self.num_tokens + num_tokens,
            num_prefills=self.num_prefills + 1,
            prefill_context=self.prefill_context + context,
            prefill_work=self.prefill_work + num_tokens * (context + num_tokens / 2),
        )


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
        for field in fields(self):
            value = getattr(self, field.name)
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} must be a number of at least 0, got {value}")

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
