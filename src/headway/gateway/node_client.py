"""How is a node asked, and what did it do instead of answering?

NodeError
├── NodeRefusedError    nobody listens there: nothing was processed
├── NodeBusyError       it says that it is full or not ready (429, 503)
├── NodeFailedError     an error of its own (5xx), a lost connection, or nonsense
│   └── NodeInternalError   it lives and says that this request failed (500, an error event)
├── NodeTimeoutError    silent for longer than the time limit
└── NodeRejectedError   it blames the request (4xx); passed on, never retried
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Protocol

import aiohttp
import msgspec
from msgspec import Struct

from headway.errors import NodeError

KEEP_ALIVE_S = 4.0
"""Below the 5 s after which vLLM closes an idle connection, so that no request runs into it."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
WHOLE_BODY_BYTES = 64 * 1024
"""Larger bodies are not handed to the kernel in one call."""

Headers = dict[str, str]


class NodeRefusedError(NodeError):
    """Nobody listens at the node's address, or no connection could be made in time."""


class NodeBusyError(NodeError):
    """The node is full or not ready. `retry_after_s` is its own hint, None without one."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NodeFailedError(NodeError):
    """The node failed at this request: a 5xx, a lost connection, or an answer that is nonsense."""


class NodeInternalError(NodeFailedError):
    """The node lives, and failed at this request; the request itself may be the cause."""


class NodeTimeoutError(NodeError):
    """The node was silent for too long."""


class NodeRejectedError(NodeError):
    """The node says that the request is wrong."""

    def __init__(self, status: int, message: str, param: str | None, code: str | None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code


class _Detail(Struct):
    message: str | None = None
    param: str | None = None
    code: str | int | None = None


class _ErrorAnswer(Struct):
    """OpenAI's envelope, or the same fields without it, as older nodes send them."""

    error: _Detail | str | None = None
    message: str | None = None
    param: str | None = None


_ERROR_DECODER = msgspec.json.Decoder(_ErrorAnswer)


class Addressed(Protocol):
    """Something with a root URL."""

    @property
    def url(self) -> str:
        """Root of the HTTP server, without a slash at the end."""


class NodeClient:
    """Connections to every node. Use it between `start` and `close`, in one event loop."""

    def __init__(self, *, connect_timeout_s: float) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=limits,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            # Transports finish closing in the next turn of the loop.
            await asyncio.sleep(0)

    async def post(
        self, node: Addressed, path: str, body: bytes, headers: Headers, *, timeout_s: float
    ) -> aiohttp.ClientResponse:
        """Send a request; return the answer once its status is known to be 200, body unread.

        The caller closes or releases what it gets. Raises each kind of NodeError.
        """
        async with _limits(node, timeout_s):
            return await self._post(node, path, body, headers)

    async def fetch(
        self, node: Addressed, path: str, body: bytes, headers: Headers, *, timeout_s: float
    ) -> bytes:
        """Send a request; return the body of an answer whose status is 200.

        Raises each kind of NodeError.
        """
        async with _limits(node, timeout_s), await self._post(node, path, body, headers) as answer:
            return await read_bounded(answer, MAX_ANSWER_BYTES)

    async def get(self, node: Addressed, path: str, *, timeout_s: float) -> tuple[int, bytes]:
        """Return status and body of a page.

        Raises NodeRefusedError, NodeFailedError and NodeTimeoutError.
        """
        async with _limits(node, timeout_s), self._ready.get(node.url + path) as answer:
            return answer.status, await read_bounded(answer, MAX_ANSWER_BYTES)

    async def _post(
        self, node: Addressed, path: str, body: bytes, headers: Headers
    ) -> aiohttp.ClientResponse:
        # A stream is written piece by piece, with everybody else's turns between the pieces.
        data = body if len(body) <= WHOLE_BODY_BYTES else BytesIO(body)
        answer = await self._ready.post(
            node.url + path, data=data, headers=headers, allow_redirects=False
        )
        if answer.status == 200:
            return answer
        raise await _refusal(answer)

    @property
    def _ready(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the node client was not started")
        return self._session


@asynccontextmanager
async def _limits(node: Addressed, timeout_s: float) -> AsyncIterator[None]:
    """Limit the time and turn every way of failing into its NodeError."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NodeRefusedError(f"no connection to {node.url}: {error}") from error
    except (aiohttp.ClientError, ConnectionError) as error:
        raise NodeFailedError(f"lost connection: {error}") from error
    except TimeoutError:
        raise NodeTimeoutError(f"no answer within {timeout_s:g} s") from None


async def read_bounded(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the whole body. Raises NodeFailedError when it is larger than `max_bytes`."""
    parts: list[bytes] = []
    size = 0
    while part := await answer.content.readany():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            answer.close()
            raise NodeFailedError(f"an answer of more than {max_bytes} bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _refusal(answer: aiohttp.ClientResponse) -> NodeError:
    """Read an answer that is not 200 and say what it means."""
    async with answer:
        status = answer.status
        detail = _explain(await read_bounded(answer, MAX_ERROR_BYTES))
        message = detail.message or f"the node answered {status}"
        if status in (429, 503):
            return NodeBusyError(message, _seconds(answer.headers.get("retry-after")))
        if status in (401, 403, 407):
            # The client has shown its key to us, not to the node: this is between us and the node.
            return NodeFailedError(f"the node refuses this gateway: {status}")
        if 400 <= status < 500:
            # Nodes send numbers as code; OpenAI's clients expect a word.
            code = detail.code if isinstance(detail.code, str) else None
            return NodeRejectedError(status, message, detail.param, code)
        kind = NodeInternalError if status == 500 else NodeFailedError
        return kind(f"{status}: {message}")


def _explain(body: bytes) -> _Detail:
    try:
        answer = _ERROR_DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Detail()
    if isinstance(answer.error, _Detail):
        return answer.error
    return _Detail(message=answer.error or answer.message, param=answer.param)


def _seconds(value: str | None) -> float | None:
    """Return a Retry-After of whole seconds; its other form, a date, counts as none."""
    return float(value) if value is not None and value.isdecimal() and len(value) < 9 else None
