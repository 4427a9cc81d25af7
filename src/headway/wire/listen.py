"""How does an ASGI app listen and stop, the same for both servers?"""

import socket
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.wire.errors import error_body
from headway.wire.event_stream import ABORT_EXTENSION
from headway.wire.routing import Router

KEEP_ALIVE_S = 75
"""Longer than the idle time of the usual proxies and client pools, so that they close first."""

BACKLOG = 2048
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 128


class StrictProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, for clients that cannot be trusted to behave.

    1. A client that does not read can be dropped at once; closing would wait for it.
    2. Nothing is pipelined: what comes before an answer is complete is not read, and the connection
       closes after that answer (the client sends it again, RFC 9112 section 9.3.2). So the end of
       a connection is always the end of the request that is being answered.
    3. An offer to upgrade, say to h2c, is declined by ignoring it (RFC 9110 section 7.8).
    4. A head beyond MAX_HEAD_BYTES or MAX_HEADERS is 431; what is not HTTP/1.1 is 400; both in the
       OpenAI error shape.
    """

    _is_in_head = True
    _head_bytes = 0
    _is_ignoring = False

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._unset_keepalive_if_required()
        if self._is_ignoring or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("The request is not valid HTTP/1.1")
        if self._is_in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, "The request head is too large", "headers_too_large")

    def on_message_begin(self) -> None:
        """Offer the abort to the app with each request."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
            self._is_ignoring = True
            return
        super().on_message_begin()
        self._is_in_head = True
        self.scope["extensions"] = {ABORT_EXTENSION: {"abort": self.transport.abort}}

    def on_url(self, url: bytes) -> None:
        """Take a part of the target."""
        if not self._is_ignoring:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if not self._is_ignoring:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer, unless the head is too large or an upgrade has to be declined first."""
        if self._is_ignoring or self.parser.should_upgrade():
            return
        self._is_in_head = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS:
            self._refuse(431, "The request head is too large", "headers_too_large")
            self._is_ignoring = True
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if not self._is_ignoring:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of the body."""
        if self._is_ignoring or self.parser.should_upgrade():
            return
        self._head_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and close."""
        self._refuse(400, msg, "invalid_http")

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read the request once more as if nothing had been offered; `rest` follows its head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.send_400_response("CONNECT is not served here")
            return
        kept = [(n, v) for n, v in self.headers if n not in (b"upgrade", b"connection")]
        head = b"".join(b"%b: %b\r\n" % header for header in kept)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self.url, head))
        self.parser.feed_data(rest)

    def _refuse(self, status: int, text: str, code: str) -> None:
        """Answer, unless an answer has begun, and close."""
        if self.transport.is_closing():
            return
        running = self.cycle is not None and not self.cycle.response_complete
        if running:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not running or not self.cycle.response_started:
            body = error_body(text, "invalid_request_error", code=code)
            phrase = HTTPStatus(status).phrase.encode("ascii")
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%b" % (status, phrase, len(body), body)
            )
        self.transport.close()


class GracefulServer(uvicorn.Server):
    """A server that drains on the first SIGTERM or SIGINT, stops at once on the second.

    uvicorn raises the signal again after draining; here an orderly stop returns, so that the
    process can end with code 0. `on_exit` is called once, at the first signal, inside the handler.
    """

    def __init__(self, config: uvicorn.Config, on_exit: Callable[[], object] | None = None) -> None:
        super().__init__(config)
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if self.should_exit:
            self.force_exit = True
        elif self._on_exit is not None:
            self._on_exit()
        self.should_exit = True

    @property
    def port(self) -> int:
        """The port that is listened on, once `started`."""
        address = self.servers[0].sockets[0].getsockname()
        return int(address[1])


def open_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one. Raises OSError when it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(False)
    return listener


def listen_config(app: Router, **settings: Any) -> uvicorn.Config:
    """Return how uvicorn serves `app`; `settings` are uvicorn's own, such as host and port."""
    return uvicorn.Config(
        app,
        http=StrictProtocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=BACKLOG,
        **settings,
    )


def graceful_server(
    app: Router, *, drain_s: float, on_exit: Callable[[], object] | None = None
) -> GracefulServer:
    """Return a server for `app`; run it with sockets of `open_socket`.

    `drain_s`: longest time that requests in progress get to finish, in whole seconds from 1.
    """
    config = listen_config(app, timeout_graceful_shutdown=max(1, round(drain_s)))
    return GracefulServer(config, on_exit)
