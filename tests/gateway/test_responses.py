"""The table of outcomes, and the hints to retry (trial E7)."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.outcome import Outcome
from headway.gateway.responses import ANSWERS, answer_for, error_answer, retry_headers

VOCABULARY = {
    "rejected-saturated",
    "rejected-ttl-expired",
    "rejected-no-endpoints",
    "rejected-shutting-down",
    "evicted",
}


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_its_row(outcome: Outcome) -> None:
    answer = ANSWERS[outcome]
    if outcome is Outcome.COMPLETED:
        assert answer.status == 200
        return
    status, headers, body = error_answer(answer)
    error = msgspec.json.decode(body)["error"]
    assert status == answer.status >= 400
    assert set(error) == {"message", "type", "param", "code"}
    assert all(isinstance(error[key], str) and error[key] for key in ("message", "type", "code"))
    assert answer.drop_reason is None or answer.drop_reason in VOCABULARY
    names = dict(headers)
    assert (b"retry-after" in names) == answer.retry
    assert names[b"x-should-retry"] == (b"true" if answer.retry else b"false")
    # Contention is 429, no capacity at all is 503, and both say why.
    if status in (429, 503):
        assert answer.retry
        assert answer.drop_reason is not None


def test_a_shed_flex_request_lacks_resources() -> None:
    assert answer_for(Outcome.REJECTED_SATURATED).code == "server_overloaded"
    assert answer_for(Outcome.REJECTED_SATURATED, flex=True).code == "resource_unavailable"
    assert answer_for(Outcome.EVICTED_TTL_EXPIRED, flex=True).code == "queue_timeout"


@given(st.none() | st.floats(allow_nan=True, allow_infinity=True))
def test_a_retry_hint_is_whole_seconds_that_sdks_obey(wait_s: float | None) -> None:
    headers = dict(retry_headers(retry=True, retry_after_s=wait_s))
    seconds = int(headers[b"retry-after"])
    assert 1 <= seconds <= 120
    assert int(headers[b"retry-after-ms"]) <= seconds * 1000
    if wait_s is not None and math.isfinite(wait_s) and 1 <= wait_s <= 120:
        assert seconds >= math.floor(wait_s)
        assert headers[b"x-should-retry"] == b"true"


def test_a_wait_beyond_what_sdks_accept_says_not_to_retry() -> None:
    assert dict(retry_headers(retry=True, retry_after_s=500.0))[b"x-should-retry"] == b"false"
