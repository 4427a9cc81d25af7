"""Can this request ever be served here?

What never fits is refused at submission, by the field that is wrong; what does not fit now waits.
"""

from collections.abc import Iterable
from math import isfinite

from headway.core.service import MAX_WEIGHT, MIN_WEIGHT
from headway.engine.request import EngineRequest
from headway.errors import InvalidRequestError


class Fit:
    """The bounds of one engine. Immutable, so any thread may ask."""

    def __init__(
        self, *, vocab_size: int, max_model_len: int, num_kv_tokens: int, num_ranks: int
    ) -> None:
        self._vocab_size = vocab_size
        self._max_model_len = max_model_len
        self._num_kv_tokens = num_kv_tokens
        self._num_ranks = num_ranks

    @property
    def max_num_tokens(self) -> int:
        """Longest prompt and answer together."""
        return min(self._max_model_len, self._num_kv_tokens)

    def check(self, request: EngineRequest) -> int:
        """Return how many tokens each answer may have. Raises InvalidRequestError."""
        params = request.params
        _check_caller(request, self._num_ranks)
        num_prompt = len(request.prompt_token_ids)
        # First, so that no walk over the tokens is longer than the context.
        self._check_length(num_prompt)
        self._check_tokens("prompt", request.prompt_token_ids)
        self._check_tokens("logit_bias", params.logit_bias)
        self._check_tokens("stop_token_ids", params.stop_token_ids)
        left = self.max_num_tokens - num_prompt
        if params.max_tokens is None:
            if params.min_tokens > left:
                raise InvalidRequestError(
                    f"min_tokens is {params.min_tokens}, but {left} tokens are left after a "
                    f"prompt of {num_prompt}",
                    param="min_tokens",
                )
            return left
        if params.max_tokens > left:
            raise InvalidRequestError(
                f"max_tokens is {params.max_tokens}, but at most {left} fit: the prompt has "
                f"{num_prompt} tokens, {self._limit_text()}",
                param="max_tokens",
                code="context_length_exceeded" if self._context_binds else None,
            )
        return params.max_tokens

    @property
    def _context_binds(self) -> bool:
        return self._max_model_len <= self._num_kv_tokens

    def _limit_text(self) -> str:
        if self._context_binds:
            return f"the model's context is {self._max_model_len}"
        return f"the KV cache holds {self._num_kv_tokens}"

    def _check_length(self, num_prompt: int) -> None:
        if num_prompt == 0:
            raise InvalidRequestError("the prompt is empty", param="prompt")
        if num_prompt >= self.max_num_tokens:
            raise InvalidRequestError(
                f"the prompt has {num_prompt} tokens, {self._limit_text()}, "
                "and at least one token is to be generated",
                param="prompt",
                code="context_length_exceeded",
            )

    def _check_tokens(self, name: str, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if not 0 <= token_id < self._vocab_size:
                raise InvalidRequestError(
                    f"{name} holds token {token_id}; the vocabulary ends at {self._vocab_size - 1}",
                    param=name,
                )


def _check_caller(request: EngineRequest, num_ranks: int) -> None:
    if not 0 <= request.rank < num_ranks:
        raise InvalidRequestError(f"there is no tier of rank {request.rank}", param="rank")
    if not MIN_WEIGHT <= request.weight <= MAX_WEIGHT:
        text = f"weight must be from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        raise InvalidRequestError(text, param="weight")
    deadline_s = request.deadline_s
    if deadline_s is not None and not (isfinite(deadline_s) and deadline_s > 0):
        raise InvalidRequestError("deadline_s must be a number above 0", param="deadline_s")
