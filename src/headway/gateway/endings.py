"""Which outcome does an exception mean, and what is still said to the client?"""

import asyncio
from dataclasses import dataclass

from headway.core.outcome import Outcome
from headway.errors import (
    AuthenticationError,
    ClientError,
    ModelNotFoundError,
    NodeError,
    PermissionDeniedError,
)
from headway.flowcontrol.controller import ShedError
from headway.gateway.exchange import Exchange
from headway.gateway.node_client import NodeRejectedError, NodeTimeoutError
from headway.gateway.responses import Headers, answer_for, error_answer, retry_headers
from headway.wire.errors import client_error_body, error_body, error_headers
from headway.wire.event_stream import WriteTimeoutError
from headway.wire.http import ClientDisconnectError

Reply = tuple[int, Headers, bytes]

_REJECTIONS: tuple[tuple[type[ClientError], Outcome], ...] = (
    (AuthenticationError, Outcome.REJECTED_UNAUTHENTICATED),
    (PermissionDeniedError, Outcome.REJECTED_FORBIDDEN),
    (ModelNotFoundError, Outcome.REJECTED_NOT_FOUND),
    (ClientError, Outcome.REJECTED_INVALID),
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ends. `reply` is None when nobody is there, or nobody may be told."""

    outcome: Outcome
    detail: str | None = None
    reply: Reply | None = None

    @property
    def body(self) -> bytes:
        """The error in OpenAI's shape."""
        return b"" if self.reply is None else self.reply[2]


def ending_of(error: BaseException, exchange: Exchange) -> Ending:
    """Return the ending that `error` means for the request."""
    if isinstance(error, ClientError):
        return Ending(_rejection(error), error.message, _client_reply(error))
    if isinstance(error, NodeRejectedError):
        return Ending(Outcome.REJECTED_INVALID, error.message, _passed_on(error))
    if isinstance(error, ShedError):
        return _shed(error, exchange)
    if isinstance(error, NodeTimeoutError):
        return _failed(Outcome.FAILED_TIMEOUT, str(error))
    if isinstance(error, NodeError):
        return _failed(Outcome.FAILED_NODE, str(error))
    if isinstance(error, WriteTimeoutError):
        return Ending(Outcome.CANCELLED, "the client stopped reading")
    return _left(error, exchange)


def _left(error: BaseException, exchange: Exchange) -> Ending:
    """Nothing of ours went wrong: somebody went away."""
    if exchange.cut_off:
        return _shed(ShedError(Outcome.EVICTED_SHUTTING_DOWN, 0.0), exchange)
    if isinstance(error, ClientDisconnectError | asyncio.CancelledError):
        return Ending(Outcome.COMPLETED if exchange.answered else Outcome.CANCELLED)
    return Ending(Outcome.FAILED_NODE, f"unexpected {type(error).__name__}")


def _rejection(error: ClientError) -> Outcome:
    return next(outcome for kind, outcome in _REJECTIONS if isinstance(error, kind))


def _client_reply(error: ClientError) -> Reply:
    headers = [*retry_headers(retry=False, retry_after_s=None), *error_headers(error)]
    return error.status, headers, client_error_body(error)


def _passed_on(error: NodeRejectedError) -> Reply:
    """The node's complaint, in the shape that OpenAI's clients expect."""
    code = "invalid_value" if error.code is None else error.code
    body = error_body(error.message, "invalid_request_error", error.param, code)
    return error.status, retry_headers(retry=False, retry_after_s=None), body


def _shed(error: ShedError, exchange: Exchange) -> Ending:
    choice = exchange.choice
    flex = choice is not None and choice.used.service_tier == "flex"
    answer = answer_for(error.outcome, flex=flex)
    detail = answer.message if error.reason is None else error.reason.value
    reply = error_answer(answer, retry_after_s=error.retry_after_s)
    return Ending(error.outcome, detail, reply)


def _failed(outcome: Outcome, detail: str) -> Ending:
    return Ending(outcome, detail, error_answer(answer_for(outcome)))
