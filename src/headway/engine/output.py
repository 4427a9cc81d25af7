"""What does a step's token add to an answer?

Tokens become text (`detokenizer.py`), the text is searched for stop strings (`stop_matcher.py`),
and what may be shown is a `Choice`. Joined, the choices of one index are the whole answer.
"""

from headway.engine.request import Choice, FinishReason, TokenLogprob
from headway.engine.runner import SampledToken
from headway.engine.sampling_params import SamplingParams
from headway.engine.stop_matcher import StopMatcher
from headway.engine.tokenizer import Tokenizer


class AnswerText:
    """The text of one growing answer."""

    def __init__(self, index: int, params: SamplingParams, tokenizer: Tokenizer) -> None:
        self._index = index
        self._params = params
        self._detokenizer = tokenizer.detokenizer(
            skip_special_tokens=params.skip_special_tokens, continuation=True
        )
        self._matcher = StopMatcher(params.stop, params.include_stop_str_in_output)
        self._num_tokens = 0

    def push(self, token: SampledToken, reason: FinishReason | None) -> Choice:
        """Return what the token adds. `reason`: why the answer ends with it, as far as tokens tell.

        The choice's own `finish_reason` also knows stop strings. The text of a token that stops
        is shown only with `include_stop_str_in_output`.
        """
        self._num_tokens += 1
        stopped_by_token = reason is FinishReason.STOP
        text = ""
        if not stopped_by_token or self._params.include_stop_str_in_output:
            text = self._detokenizer.push(token.token_id)
        if reason is not None:
            text += self._detokenizer.finish()
        shown = self._search(text)
        stop_reason: str | int | None = self._matcher.matched
        if stop_reason is not None:
            reason = FinishReason.STOP
        elif reason is not None:
            shown += self._matcher.finish()
            if stopped_by_token and token.token_id in self._params.stop_token_ids:
                stop_reason = token.token_id
        return Choice(
            index=self._index,
            text=shown,
            token_ids=(token.token_id,),
            logprobs=self._logprobs(token),
            finish_reason=reason,
            stop_reason=stop_reason,
        )

    def fail(self, error: str) -> Choice:
        """Return the end of an answer that broke off, with the text that was held back."""
        text = self._detokenizer.finish() + self._matcher.finish()
        return Choice(self._index, text, (), finish_reason=FinishReason.ERROR, error=error)

    def _search(self, text: str) -> str:
        """Look for stop strings, but only in what comes after `min_tokens` tokens."""
        if self._num_tokens <= self._params.min_tokens:
            return text
        return self._matcher.push(text)

    def _logprobs(self, token: SampledToken) -> tuple[TokenLogprob, ...] | None:
        if self._params.logprobs is None or token.logprob is None:
            return None
        return (TokenLogprob(token.token_id, token.logprob, token.top_logprobs),)
