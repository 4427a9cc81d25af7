"""What happens to a client that does not speak HTTP as it should?"""

import asyncio
import json
import socket
import threading
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from headway.errors import RequestTimeoutError
from headway.wire.http import read_body, run_until_disconnect, send_bytes
from headway.wire.listen import MAX_HEAD_BYTES, MAX_HEADERS
from headway.wire.routing import Router
from tests.loopback import serve

PATIENCE_S = 30.0


class Echo:
    """Answers with the body; holds an answer to `hold` back until released or left."""

    def __init__(self) -> None:
        self.left = threading.Event()
        self.release = asyncio.Event()
        self.seen: list[bytes] = []

    def app(self) -> Router:
        return Router({"/echo": {"POST": self.answer}, "/hold": {"POST": self.hold}})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(scope, receive, 1000)
        self.seen.append(body)
        await send_bytes(send, 200, body)

    async def hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(scope, receive, 1000)
        try:
            await run_until_disconnect(receive, self.release.wait())
        finally:
            self.left.set()
        await send_bytes(send, 200, b"held")


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    head = [b"POST %b HTTP/1.1" % path.encode(), b"Host: x", *headers]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", body])


def everything(port: int, data: bytes) -> bytes:
    """Send, and read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(data)
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def error_of(answer: bytes) -> Any:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head
    return json.loads(body)["error"]


@pytest.mark.parametrize(
    "data",
    [
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"BREW /echo HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: x\r\nX-A: \0\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400_in_the_openai_shape(data: bytes) -> None:
    with serve(Echo().app()) as server:
        answer = everything(server.port, data)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert error_of(answer)["code"] == "invalid_http"
        close = post("/echo", b"next", b"Connection: close")
        assert everything(server.port, close).endswith(b"next")


@pytest.mark.parametrize(
    "head",
    [
        b"X-A: %b\r\n" % (b"a" * MAX_HEAD_BYTES),
        b"X-A: a\r\n" * (MAX_HEADERS + 1),
        b"X-A: %b" % (b"a" * (MAX_HEAD_BYTES + 1)),
    ],
)
def test_a_head_too_large_is_431(head: bytes) -> None:
    with serve(Echo().app()) as server:
        answer = everything(server.port, b"POST /echo HTTP/1.1\r\nHost: x\r\n%b\r\n" % head)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert error_of(answer)["code"] == "headers_too_large"


def test_an_offer_to_upgrade_is_ignored() -> None:
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAEA")
    with (
        serve(Echo().app()) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as client,
    ):
        data = post("/echo", b"the whole body", *offer)
        for cut in (len(data), len(data) - 5):
            client.sendall(data[:cut])
            client.sendall(data[cut:])
            answer = b""
            while not answer.endswith(b"the whole body"):
                part = client.recv(65536)
                assert part, answer
                answer += part
            assert answer.startswith(b"HTTP/1.1 200 ")


def test_what_is_pipelined_is_not_read_and_the_connection_closes() -> None:
    echo = Echo()
    with serve(echo.app()) as server:
        answer = everything(server.port, post("/echo", b"one") + post("/echo", b"two"))
    assert answer.endswith(b"one")
    assert answer.count(b"HTTP/1.1 200") == 1
    assert echo.seen == [b"one"]


def test_a_client_that_pipelines_and_leaves_is_noticed() -> None:
    echo = Echo()
    with serve(echo.app()) as server:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as client:
            client.sendall(post("/hold", b"one"))
            client.sendall(post("/echo", b"two"))
        assert echo.left.wait(PATIENCE_S)
    assert echo.seen == []


def test_a_body_that_never_ends_is_given_up() -> None:
    async def scenario() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        scope = {"type": "http", "headers": []}
        with pytest.raises(RequestTimeoutError) as caught:
            await read_body(scope, receive, 10, timeout_s=0.0)
        assert caught.value.status == 408

    asyncio.run(scenario())
