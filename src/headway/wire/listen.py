"""How does an ASGI app listen and stop, the same for both servers?"""

import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headway.wire.event_stream import ABORT_EXTENSION
from headway.wire.routing import Router

KEEP_ALIVE_S = 75
"""Longer than the idle time of the usual proxies and client pools, so that they close first."""

BACKLOG = 2048


class AbortableProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, plus a way to drop a client that does not read.

    Closing waits until what was written has been read, which such a client never does.
    """

    def on_message_begin(self) -> None:
        """Offer the abort to the app with each request."""
        super().on_message_begin()
        self.scope["extensions"] = {ABORT_EXTENSION: {"abort": self.transport.abort}}


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
        http=AbortableProtocol,
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
