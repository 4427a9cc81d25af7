"""What does the client get for each outcome: which status, code, headers and hint to retry?

The only table from `Outcome` to HTTP. 429 says "you or this tier, later"; 503 says "no capacity at
all". Drop reasons are llm-d's words: rejected means no work was done, evicted means it had waited.
"""

from dataclasses import dataclass
from math import ceil, isfinite
from random import uniform

from headway.core.outcome import Outcome
from headway.wire.errors import error_body

DROP_REASON_HEADER = b"x-headway-drop-reason"
MIN_RETRY_AFTER_S = 1
MAX_RETRY_AFTER_S = 120
"""The official SDKs do not retry at all when told to wait longer than this."""
JITTER = 1.25
"""Waits are stretched by up to this factor, so that who was shed together returns apart."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an outcome looks on the wire. `status` 499 is for logs only: nobody is there to read."""

    status: int
    type: str
    code: str
    message: str
    drop_reason: str | None = None
    retry: bool = False
    """Whether the same request may succeed later; only then a Retry-After is sent."""


_CLIENT = "invalid_request_error"
_LIMIT = "rate_limit_error"
_SERVER = "server_error"

ANSWERS: dict[Outcome, Answer] = {
    Outcome.COMPLETED: Answer(200, "", "", ""),
    Outcome.CANCELLED: Answer(499, _CLIENT, "client_closed_request", "the client left"),
    Outcome.REJECTED_INVALID: Answer(400, _CLIENT, "invalid_value", "the request is not valid"),
    Outcome.REJECTED_UNAUTHENTICATED: Answer(
        401, _CLIENT, "invalid_api_key", "the API key is not known here"
    ),
    Outcome.REJECTED_FORBIDDEN: Answer(
        403, "permission_error", "tier_not_entitled", "this key may not use that tier"
    ),
    Outcome.REJECTED_NOT_FOUND: Answer(
        404, _CLIENT, "model_not_found", "the model is not served here"
    ),
    Outcome.REJECTED_SATURATED: Answer(
        429,
        _LIMIT,
        "server_overloaded",
        "the queue of this tier is full or the wait would be too long; retry later",
        "rejected-saturated",
        retry=True,
    ),
    Outcome.REJECTED_NO_ENDPOINTS: Answer(
        503, _SERVER, "no_capacity", "no node is healthy", "rejected-no-endpoints", retry=True
    ),
    Outcome.REJECTED_SHUTTING_DOWN: Answer(
        503,
        _SERVER,
        "shutting_down",
        "this gateway is shutting down",
        "rejected-shutting-down",
        retry=True,
    ),
    Outcome.EVICTED_SATURATED: Answer(
        429,
        _LIMIT,
        "server_overloaded",
        "the request gave way to others of its tier, or every node was full; retry later",
        "rejected-saturated",
        retry=True,
    ),
    Outcome.EVICTED_TTL_EXPIRED: Answer(
        429,
        _LIMIT,
        "queue_timeout",
        "the request waited in the queue for as long as its tier allows",
        "rejected-ttl-expired",
        retry=True,
    ),
    Outcome.EVICTED_NO_ENDPOINTS: Answer(
        503,
        _SERVER,
        "no_capacity",
        "no node became healthy while the request waited",
        "rejected-no-endpoints",
        retry=True,
    ),
    Outcome.EVICTED_SHUTTING_DOWN: Answer(
        503,
        _SERVER,
        "shutting_down",
        "this gateway is shutting down",
        "rejected-shutting-down",
        retry=True,
    ),
    Outcome.FAILED_NODE: Answer(
        502,
        _SERVER,
        "upstream_error",
        "the node failed while it served the request",
        "evicted",
        retry=True,
    ),
    Outcome.FAILED_TIMEOUT: Answer(
        504, _SERVER, "upstream_timeout", "the node did not answer in time", "evicted", retry=True
    ),
}

Headers = list[tuple[bytes, bytes]]


def answer_for(outcome: Outcome, *, flex: bool = False) -> Answer:
    """Return the row of `outcome`. A shed flex request says `resource_unavailable`, as OpenAI's."""
    answer = ANSWERS[outcome]
    if flex and answer.code == "server_overloaded":
        return Answer(
            answer.status,
            answer.type,
            "resource_unavailable",
            answer.message,
            answer.drop_reason,
            answer.retry,
        )
    return answer


def retry_headers(retry: bool, retry_after_s: float | None) -> Headers:
    """Return what the SDKs read to decide whether and when to try again.

    `retry_after_s` is the predicted wait in seconds; None or nonsense counts as the shortest. A
    wait over 120 s is said to be hopeless for an automatic retry, yet is told, capped.
    """
    if not retry:
        return [(b"x-should-retry", b"false")]
    wait_s = retry_after_s if retry_after_s is not None and isfinite(retry_after_s) else 0.0
    hopeless = wait_s > MAX_RETRY_AFTER_S
    wait_s = min(max(wait_s * uniform(1.0, JITTER), MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)
    return [
        (b"retry-after", b"%d" % ceil(wait_s)),
        (b"retry-after-ms", b"%d" % (wait_s * 1000)),
        (b"x-should-retry", b"false" if hopeless else b"true"),
    ]


def error_answer(
    answer: Answer, *, message: str | None = None, retry_after_s: float | None = None
) -> tuple[int, Headers, bytes]:
    """Return status, headers and body that tell `answer` to the client."""
    headers = retry_headers(answer.retry, retry_after_s)
    if answer.drop_reason is not None:
        headers.append((DROP_REASON_HEADER, answer.drop_reason.encode()))
    text = answer.message if message is None else message
    return answer.status, headers, error_body(text, answer.type, None, answer.code)
