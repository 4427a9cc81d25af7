"""Which request of that flow?

Earliest due time first, where long prompts count as due a little later. The key is fixed when the
request arrives, so a queue never needs sorting again, and whatever arrives after a request's key
has passed stands behind it: every request is overtaken by finitely many.
"""

UNTARGETED_DUE_S = 600.0
"""When a request without TTFT target and deadline is taken to be due after its arrival."""
S_PER_PROMPT_TOKEN = 0.001
"""How much later each prompt token makes a request count as due."""
MAX_LENGTH_FACTOR = 4.0
"""Most that the prompt may add, in multiples of the time to the request's due time."""


def order_key(
    arrival: float, *, ttft_s: float | None, deadline: float | None, prompt_tokens: int
) -> float:
    """Return the request's static key in seconds of the caller's clock; the lowest goes first.

    1. Without a deadline: arrival + TTFT target (or `UNTARGETED_DUE_S`) + prompt term.
    2. A deadline only ever moves a request forward: the key is at most the deadline.
    3. The prompt term is bounded, so a long prompt is not passed over for ever.

    Source of the form: hybrid priority of QoServe (ASPLOS'26).
    """
    target_s = UNTARGETED_DUE_S if ttft_s is None else ttft_s
    length_s = min(S_PER_PROMPT_TOKEN * prompt_tokens, MAX_LENGTH_FACTOR * target_s)
    due = arrival + target_s + length_s
    return due if deadline is None else min(due, deadline)
