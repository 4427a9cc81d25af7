"""What do several outputs of one request add up to?"""

from collections.abc import Sequence
from itertools import chain

from headway.engine.request import Choice, RequestOutput


def merge_outputs(outputs: Sequence[RequestOutput]) -> RequestOutput:
    """Return one output that says what these say, in their order; choices by index.

    Raises ValueError when there is none.
    """
    if not outputs:
        raise ValueError("nothing to merge")
    latest = outputs[-1]
    by_index: dict[int, list[Choice]] = {}
    for choice in chain.from_iterable(output.choices for output in outputs):
        by_index.setdefault(choice.index, []).append(choice)
    return RequestOutput(
        request_id=latest.request_id,
        choices=tuple(_merge_choices(by_index[index]) for index in sorted(by_index)),
        finished=latest.finished,
        num_prompt_tokens=latest.num_prompt_tokens,
        num_cached_tokens=latest.num_cached_tokens,
        num_output_tokens=latest.num_output_tokens,
        queue_s=latest.queue_s,
        num_preemptions=latest.num_preemptions,
    )


def _merge_choices(choices: list[Choice]) -> Choice:
    latest = choices[-1]
    if len(choices) == 1:
        return latest
    logprobs = [choice.logprobs for choice in choices if choice.logprobs is not None]
    return Choice(
        index=latest.index,
        text="".join(choice.text for choice in choices),
        token_ids=tuple(chain.from_iterable(choice.token_ids for choice in choices)),
        logprobs=tuple(chain.from_iterable(logprobs)) if logprobs else None,
        finish_reason=latest.finish_reason,
        stop_reason=latest.stop_reason,
        error=latest.error,
    )
