"""A server on the loopback, in a thread of its own, for tests that need real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headway.wire.listen import GracefulServer, graceful_server, open_socket
from headway.wire.routing import LifespanHook, Router

_LONGEST_START_S = 30.0


class Loopback:
    """A running server: its address, and how to stop it."""

    def __init__(self, server: GracefulServer, port: int) -> None:
        self.server = server
        self.host = "127.0.0.1"
        self.port = port

    @property
    def url(self) -> str:
        """The root, without `/v1`."""
        return f"http://{self.host}:{self.port}"


@contextmanager
def serve(
    app: Router, *, drain_s: float = 5.0, send_buffer: int | None = None
) -> Iterator[Loopback]:
    """Serve `app` on a free port while the block runs. Raises what the server raised.

    `send_buffer`: bytes that the kernel keeps for each slow reader; None: as many as it likes.
    """
    started = threading.Event()
    failures: list[BaseException] = []
    app.on_start = _then(app.on_start, started)
    server = graceful_server(app, drain_s=drain_s)
    listener = open_socket("127.0.0.1", 0)
    if send_buffer is not None:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    port = listener.getsockname()[1]

    def run() -> None:
        try:
            server.run(sockets=[listener])
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="loopback", daemon=True)
    thread.start()
    try:
        assert started.wait(_LONGEST_START_S), "the server did not start"
        assert not failures, failures
        yield Loopback(server, port)
    finally:
        server.should_exit = True
        thread.join(_LONGEST_START_S)
        listener.close()
    assert not thread.is_alive(), "the server did not stop"
    if failures:
        raise failures[0]


def _then(first: LifespanHook | None, started: threading.Event) -> LifespanHook:
    """Return a start hook that tells `started` when `first` is done.

    The socket listens before the server does, so a request sent right after waits instead of being
    refused.
    """

    async def hook() -> None:
        if first is not None:
            await first()
        started.set()

    return hook
