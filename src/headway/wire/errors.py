"""How does an error look on the wire?

OpenAI's envelope, `{"error": {"message", "type", "param", "code"}}`, with a string as code.
"""

import msgspec
from msgspec import Struct

from headway.errors import AuthenticationError, ClientError, EngineDeadError, HeadwayError


class ErrorDetail(Struct, frozen=True):
    """What went wrong, for people (`message`) and for programs (the rest)."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(Struct, frozen=True):
    """The envelope."""

    error: ErrorDetail


def error_body(message: str, type: str, param: str | None = None, code: str | None = None) -> bytes:
    """Return the envelope as JSON."""
    return msgspec.json.encode(ErrorResponse(ErrorDetail(message, type, param, code)))


def client_error_body(error: ClientError) -> bytes:
    """Return the envelope of a caller's error; its status is `error.status`."""
    return error_body(error.message, error.type, error.param, error.code)


def error_headers(error: HeadwayError) -> list[tuple[bytes, bytes]]:
    """Return the headers that HTTP asks for beside the status: with a 401, how to say who calls."""
    is_unknown = isinstance(error, AuthenticationError)
    return [(b"www-authenticate", b"Bearer")] if is_unknown else []


def error_status(error: HeadwayError) -> int:
    """Return the HTTP status that an error means when nothing has been sent yet."""
    if isinstance(error, ClientError):
        return error.status
    return 503 if isinstance(error, EngineDeadError) else 500


def error_response(error: HeadwayError) -> tuple[int, bytes]:
    """Return status and body of any error of ours; a server error says nothing of its inside."""
    if isinstance(error, ClientError):
        return error.status, client_error_body(error)
    if isinstance(error, EngineDeadError):
        text = "The engine is not able to serve at the moment"
        return 503, error_body(text, "server_error", code="engine_dead")
    return 500, error_body("Internal server error", "server_error", code="internal_error")
