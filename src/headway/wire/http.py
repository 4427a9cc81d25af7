"""What do both servers do with a request's bytes, headers and id before they know what it asks?"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from starlette.types import Message, Receive, Scope, Send

from headway.errors import (
    BodyTooLargeError,
    EncodedBodyError,
    HeadwayError,
    InvalidRequestError,
    RequestTimeoutError,
)
from headway.wire.errors import error_body, error_headers, error_response
from headway.wire.node import REQUEST_ID_HEADER

Headers = Sequence[tuple[bytes, bytes]]

MAX_REQUEST_ID_CHARS = 128
BODY_TIMEOUT_S = 30.0
"""Longest time from the head of a request to the end of its body."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class ClientDisconnectError(Exception):
    """The client closed the connection before its answer was complete."""


async def read_body(
    scope: Scope, receive: Receive, max_bytes: int, *, timeout_s: float = BODY_TIMEOUT_S
) -> bytes:
    """Return the whole body.

    Raises EncodedBodyError when it is compressed; BodyTooLargeError as soon as more than
    `max_bytes` are announced or have come, whatever `content-length` says; RequestTimeoutError when
    the end does not come within `timeout_s`; ClientDisconnectError when the client left before it.
    """
    encodings = header_values(scope, "content-encoding")
    if any(encoding.lower() != "identity" for encoding in encodings):
        text = "The body must be sent as it is, without Content-Encoding"
        raise EncodedBodyError(text, param="Content-Encoding")
    announced = single_header(scope, "content-length")
    if announced is not None and announced.isdecimal() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read_parts(receive, max_bytes)
    except TimeoutError:
        text = f"The body was not complete after {timeout_s:g} s"
        raise RequestTimeoutError(text) from None


async def _read_parts(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectError
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is larger than the limit of {max_bytes} bytes")


def header_values(scope: Scope, name: str) -> list[str]:
    """Return all values of the header `name` (lower case), outer blanks removed."""
    wanted = name.encode("ascii")
    return [value.decode("latin-1").strip() for key, value in scope["headers"] if key == wanted]


def single_header(scope: Scope, name: str) -> str | None:
    """Return the value of a header that may come once, or None when absent; case does not matter.

    Raises InvalidRequestError with the header's name as `param` when it comes twice: nobody can say
    which of the two the caller, or a proxy on the way, meant.
    """
    values = header_values(scope, name.lower())
    if len(values) > 1:
        raise InvalidRequestError(f"The header {name} was sent more than once", param=name)
    return values[0] if values else None


def request_id(scope: Scope) -> str:
    """Return the client's own request id when it is fit to be echoed and logged, else a new one.

    It is a label for people. Nothing is ever looked up by it: the same id may come many times.
    """
    values = header_values(scope, REQUEST_ID_HEADER)
    if len(values) == 1 and _is_clean(values[0]):
        return values[0]
    return f"req-{uuid.uuid4().hex}"


def _is_clean(value: str) -> bool:
    return 0 < len(value) <= MAX_REQUEST_ID_CHARS and value.isascii() and value.isprintable()


async def run_until_disconnect(receive: Receive, work: Awaitable[T]) -> T:
    """Return what `work` returns; cancel it and raise ClientDisconnectError when the client leaves.

    The body must have been read before. `work` may send the response; its last `send` should be the
    last thing that it awaits, since servers report a disconnect after a complete response too.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("run_until_disconnect needs a running task")
    left = False

    def on_left(watch: asyncio.Task[None]) -> None:
        nonlocal left
        if not watch.cancelled():
            left = True
            task.cancel()

    watch = asyncio.create_task(_wait_for_disconnect(receive))
    watch.add_done_callback(on_left)
    cancelling = task.cancelling()
    try:
        return await work
    except asyncio.CancelledError:
        if left and task.uncancel() <= cancelling:
            raise ClientDisconnectError from None
        raise
    finally:
        watch.remove_done_callback(on_left)
        watch.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_bytes(
    send: Send,
    status: int,
    body: bytes,
    headers: Headers = (),
    *,
    content_type: bytes = b"application/json",
) -> None:
    """Send a whole response."""
    head = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode("ascii")),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: HeadwayError, headers: Headers = ()) -> None:
    """Send any error of ours in OpenAI's shape."""
    status, body = error_response(error)
    await send_bytes(send, status, body, [*headers, *error_headers(error)])


async def send_not_found(send: Send, path: str, headers: Headers = ()) -> None:
    """Send 404 for a path that nobody serves. The path is cut: it is the caller's own text."""
    text = f"Unknown path: {path[:200]}"
    body = error_body(text, "invalid_request_error", code="unknown_url")
    await send_bytes(send, 404, body, headers)


async def send_method_not_allowed(
    send: Send, method: str, allowed: Sequence[str], headers: Headers = ()
) -> None:
    """Send 405 with the methods that the path has."""
    names = ", ".join(allowed)
    text = f"Method {method[:20]} is not allowed here; allowed: {names}"
    body = error_body(text, "invalid_request_error", code="method_not_allowed")
    await send_bytes(send, 405, body, [(b"allow", names.encode("ascii")), *headers])


class Responder:
    """Remembers whether the response head went out; answers what a handler raised, if it still can.

    Use `send` in place of the server's.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        """Pass a message on."""
        if message["type"] == "http.response.start":
            self.started = True
        await self._send(message)

    async def answer_failure(self, error: Exception, headers: Headers = ()) -> None:
        """Send the response that `error` means. After the head it can only be logged."""
        if isinstance(error, ClientDisconnectError):
            return
        if not isinstance(error, HeadwayError):
            _log.error("a request handler failed", exc_info=error)
            error = HeadwayError("unexpected")
        if not self.started:
            await send_error(self.send, error, headers)
