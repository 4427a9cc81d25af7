"""Does each path and method find its handler, and each failure its answer?"""

import asyncio
import json

import pytest
from starlette.types import Receive, Scope, Send

from headway.errors import EngineDeadError, InvalidRequestError, ModelNotFoundError
from headway.wire.http import ClientDisconnectError, send_bytes
from headway.wire.routing import Router, reply_headers
from tests.wire.asgi import Client, scope_of


async def say_path(scope: Scope, receive: Receive, send: Send) -> None:
    await send_bytes(send, 200, scope["path"].encode(), reply_headers(scope))


def failing(error: Exception, *, after_head: bool = False) -> Router:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        if after_head:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise error

    return Router({"/": {}, "/fail": {"POST": fail}})


def ask(router: Router, path: str, method: str = "GET", **headers: str) -> Client:
    async def main() -> Client:
        client = Client()
        sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
        await router(scope_of(path, method=method, headers=sent), client.receive, client.send)
        return client

    return asyncio.run(main())


ROUTER = Router({"/a": {"GET": say_path, "POST": say_path}, "/a/": {"GET": say_path}})


@pytest.mark.parametrize("path", ["/a", "/a/b", "/a/b/c"])
def test_a_path_finds_its_handler(path: str) -> None:
    client = ask(ROUTER, path, x_request_id="mine")
    assert (client.status, client.body) == (200, path.encode())
    assert client.headers["x-request-id"] == "mine"


def test_two_request_ids_are_refused() -> None:
    """Nobody can say which of the two the answer should carry."""

    async def main() -> Client:
        client = Client()
        twice = [("x-request-id", "a"), ("x-request-id", "b")]
        await ROUTER(scope_of("/a", headers=twice), client.receive, client.send)
        return client

    client = asyncio.run(main())
    assert client.status == 400
    assert json.loads(client.body)["error"]["param"] == "x-request-id"
    assert client.headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize("path", ["/", "", "/a/", "/b", "/A", "//a"])
def test_other_paths_are_unknown(path: str) -> None:
    client = ask(ROUTER, path, x_request_id="mine")
    assert client.status == 404
    assert client.headers["x-request-id"] == "mine"
    assert json.loads(client.body)["error"]["code"] == "unknown_url"


def test_a_wrong_method_is_told_the_right_ones() -> None:
    client = ask(ROUTER, "/a", method="DELETE")
    assert (client.status, client.headers["allow"]) == (405, "GET, POST")
    assert ask(ROUTER, "/a/b", method="POST").headers["allow"] == "GET"


def test_head_is_answered_as_get() -> None:
    assert ask(ROUTER, "/a", method="HEAD").status == 200


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequestError("x", param="p"), 400, "invalid_value"),
        (ModelNotFoundError("x", param="model"), 404, "model_not_found"),
        (EngineDeadError("secret"), 503, "engine_dead"),
        (KeyError("secret"), 500, "internal_error"),
    ],
)
def test_what_a_handler_raises_becomes_an_answer(
    error: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = ask(failing(error), "/fail", method="POST")
    assert client.status == status
    assert json.loads(client.body)["error"]["code"] == code
    assert b"secret" not in client.body
    assert len(caplog.records) == (1 if status == 500 else 0)


def test_after_the_head_nothing_more_is_sent() -> None:
    client = ask(failing(EngineDeadError("x"), after_head=True), "/fail", method="POST")
    assert len(client.sent) == 1


def test_a_client_that_left_gets_no_answer() -> None:
    assert ask(failing(ClientDisconnectError()), "/fail", method="POST").sent == []


def lifespan(router: Router) -> list[str]:
    async def main() -> list[str]:
        client = Client()
        client.left.set()
        await router({"type": "lifespan"}, client.receive, client.send)
        return [str(message["type"]) for message in client.sent]

    return asyncio.run(main())


def test_the_lifespan_runs_its_hooks() -> None:
    ran: list[str] = []

    async def start() -> None:
        ran.append("start")

    async def stop() -> None:
        ran.append("stop")

    said = lifespan(Router({}, on_start=start, on_stop=stop))
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert ran == ["start", "stop"]


def test_a_start_that_fails_stops_the_server() -> None:
    async def start() -> None:
        raise EngineDeadError("no")

    with pytest.raises(EngineDeadError):
        lifespan(Router({}, on_start=start))
