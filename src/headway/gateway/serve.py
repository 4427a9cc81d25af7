"""How does the gateway run as a process, and how does it stop?

The first SIGTERM or SIGINT makes it unready and drains it while it keeps answering; it ends with
status 0. The second one ends it at once, with whatever is under way cut.
"""

import asyncio
import logging
import sys
from types import FrameType

import uvloop

from headway.config import Config
from headway.garbage import collect_rarely
from headway.gateway.app import Gateway, build_gateway
from headway.wire.listen import GracefulServer, graceful_server, open_socket

CLOSE_S = 5.0
"""How long connections may take to close once nothing is under way."""

SWITCH_S = 0.001
"""How long the event loop waits for a thread that reads a large body to give the interpreter up."""

_log = logging.getLogger(__name__)


class GatewayServer(GracefulServer):
    """The HTTP server of a gateway; a signal drains the gateway before the server stops."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(graceful_server(gateway.app, drain_s=CLOSE_S).config)
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._drain: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal."""
        self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Drain, then end; called again, end at once."""
        if self._drain is None:
            _log.warning("draining for up to %g s", self._gateway.config.gateway.drain_s)
            self._drain = self._loop.create_task(self._gateway.drain())
            self._drain.add_done_callback(self._drained)
        else:
            self.should_exit = True
            self.force_exit = True

    def _drained(self, _: "asyncio.Task[None]") -> None:
        self.should_exit = True


async def serve(gateway: Gateway) -> None:
    """Serve until a signal has been obeyed. Raises OSError when the address cannot be had."""
    settings = gateway.config.gateway
    listener = open_socket(settings.host, settings.port)
    _log.info("listening on %s:%d", settings.host, listener.getsockname()[1])
    try:
        await GatewayServer(gateway).serve(sockets=[listener])
    finally:
        listener.close()
        # A fast end leaves the app's own stop out.
        await gateway.stop()


def run_gateway(config: Config) -> None:
    """Run a gateway in this process until a signal ends it. Raises ConfigError and OSError."""
    gateway = build_gateway(config)
    if config.open_mode:
        _log.warning(
            "OPEN MODE: no API keys are configured, so everybody on this machine is served as one "
            "tenant with every tier. Set `keys` before listening beyond loopback."
        )
    sys.setswitchinterval(SWITCH_S)
    collect_rarely()
    uvloop.run(serve(gateway))
