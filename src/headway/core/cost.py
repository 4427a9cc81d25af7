"""What does a request cost?

Service is counted in work, not in requests: prefill, decode and cached tokens have a price each.
The unit is one prefilled token at the default prices. Prices are frozen while a process runs, so
that what two tenants were charged stays comparable.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil, inf

BYTES_PER_TOKEN = 3.6
"""Mean UTF-8 bytes per token of mixed English, code and JSON in current vocabularies."""
DEFAULT_OUTPUT_TOKENS = 256
"""What a tenant's first answers are taken to be long."""
MAX_FLOWS_REMEMBERED = 4096
NEWEST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Prices:
    """Price of one token by what has to be done for it. Raises ValueError when negative."""

    prefill: float = 1.0
    decode: float = 2.0
    cached: float = 0.02
    """Not free, so that filling the prefix cache for nothing does not pay."""

    def __post_init__(self) -> None:
        """Refuse prices that would let work be free or earn credit."""
        if not (0 < self.prefill < inf and 0 < self.decode < inf and 0 <= self.cached < inf):
            raise ValueError(f"prices must be finite and above 0, cached at least 0, got {self}")


def request_cost(
    prices: Prices, num_prompt_tokens: int, num_output_tokens: int, num_cached_tokens: int = 0
) -> float:
    """Return the cost of a request of which `num_cached_tokens` prompt tokens come from the cache.

    Raises ValueError for a negative count, or when more is cached than the prompt holds.
    """
    if not 0 <= num_cached_tokens <= num_prompt_tokens or num_output_tokens < 0:
        raise ValueError(
            f"impossible counts: {num_prompt_tokens} prompt, {num_cached_tokens} cached, "
            f"{num_output_tokens} output"
        )
    computed = num_prompt_tokens - num_cached_tokens
    return (
        prices.prefill * computed
        + prices.cached * num_cached_tokens
        + prices.decode * num_output_tokens
    )


def estimate_prompt_tokens(num_bytes: int) -> int:
    """Return about how many tokens `num_bytes` of UTF-8 prompt text make; at least 1.

    For use where no tokenizer is at hand; the error is corrected when the request is settled.
    """
    if num_bytes < 0:
        raise ValueError(f"negative size: {num_bytes}")
    return max(1, ceil(num_bytes / BYTES_PER_TOKEN))


class OutputEstimator:
    """How long will the answer be? The running mean of the flow's earlier answers.

    A flow is a tenant within a tier. The first ten answers count alike, later ones weigh a tenth
    each. The least recently used flows beyond `MAX_FLOWS_REMEMBERED` are forgotten.
    """

    def __init__(self) -> None:
        self._means: OrderedDict[tuple[int, str], tuple[float, int]] = OrderedDict()

    def expected(self, rank: int, tenant: str, max_tokens: int | None) -> int:
        """Return the expected output tokens of one answer: never above `max_tokens`, at least 1."""
        mean, _ = self._means.get((rank, tenant), (float(DEFAULT_OUTPUT_TOKENS), 0))
        tokens = max(1, round(mean))
        return tokens if max_tokens is None else max(1, min(tokens, max_tokens))

    def observe(self, rank: int, tenant: str, num_output_tokens: int) -> None:
        """Learn from an answer that has ended. Raises ValueError for a negative count."""
        if num_output_tokens < 0:
            raise ValueError(f"negative count: {num_output_tokens}")
        mean, seen = self._means.get((rank, tenant), (0.0, 0))
        share = max(1.0 / (seen + 1), NEWEST_SHARE)
        self._means[rank, tenant] = (mean + share * (num_output_tokens - mean), seen + 1)
        self._means.move_to_end((rank, tenant))
        if len(self._means) > MAX_FLOWS_REMEMBERED:
            self._means.popitem(last=False)

    def __len__(self) -> int:
        """Return how many flows are remembered."""
        return len(self._means)
