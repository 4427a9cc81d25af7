"""Are bodies, headers, ids and disconnects handled before anybody looks at the request?"""

import asyncio
import json

import pytest

from headway.errors import BodyTooLargeError, EncodedBodyError, InvalidRequestError
from headway.wire.http import (
    ClientDisconnectError,
    read_body,
    request_id,
    run_until_disconnect,
    send_method_not_allowed,
    send_not_found,
    single_header,
)
from tests.wire.asgi import Client, scope_of


def test_a_body_in_parts_is_joined() -> None:
    async def main() -> bytes:
        return await read_body(scope_of(), Client(b"ab", b"", b"c").receive, 3)

    assert asyncio.run(main()) == b"abc"


@pytest.mark.parametrize("announced", [None, "4", "1", "nonsense"])
def test_a_body_over_the_limit_is_refused_whatever_was_announced(announced: str | None) -> None:
    async def main() -> None:
        headers = [] if announced is None else [("content-length", announced)]
        client = Client(b"ab", b"cd", b"never read")
        with pytest.raises(BodyTooLargeError) as caught:
            await read_body(scope_of(headers=headers), client.receive, 3)
        assert caught.value.status == 413

    asyncio.run(main())


def test_a_body_announced_over_the_limit_is_refused_before_it_comes() -> None:
    async def main() -> None:
        scope = scope_of(headers=[("content-length", "50000000")])
        with pytest.raises(BodyTooLargeError):
            await read_body(scope, Client().receive, 3)

    asyncio.run(main())


@pytest.mark.parametrize("values", [["gzip"], ["identity, gzip"], ["identity", "br"], [""]])
def test_a_compressed_body_is_refused_unread(values: list[str]) -> None:
    scope = scope_of(headers=[("content-encoding", value) for value in values])
    client = Client(leaves=True)
    with pytest.raises(EncodedBodyError) as caught:
        asyncio.run(read_body(scope, client.receive, 10))
    assert (caught.value.status, caught.value.param) == (415, "Content-Encoding")


def test_a_body_that_is_called_what_it_is_is_read() -> None:
    scope = scope_of(headers=[("content-encoding", "Identity")])
    assert asyncio.run(read_body(scope, Client(b"{}").receive, 10)) == b"{}"


def test_a_client_that_leaves_before_the_end_of_its_body() -> None:
    async def main() -> None:
        with pytest.raises(ClientDisconnectError):
            await read_body(scope_of(), Client(b"ab", leaves=True).receive, 10)

    asyncio.run(main())


def test_a_header_that_comes_twice_is_refused_by_its_name() -> None:
    scope = scope_of(headers=[("x-priority", " high "), ("x-b", "1"), ("x-b", "2")])
    assert single_header(scope, "x-priority") == "high"
    assert single_header(scope, "x-none") is None
    with pytest.raises(InvalidRequestError) as caught:
        single_header(scope, "x-b")
    assert caught.value.param == "x-b"


@pytest.mark.parametrize("value", ["abc", "../../x", "a" * 128, "a b"])
def test_a_clean_request_id_is_kept(value: str) -> None:
    assert request_id(scope_of(headers=[("x-request-id", value)])) == value


@pytest.mark.parametrize(
    "values", [[], [""], ["a" * 129], ["a\r\nb"], ["é"], ["a\x00"], ["a" * 1_000_000], ["a", "b"]]
)
def test_any_other_request_id_is_replaced(values: list[str]) -> None:
    scope = scope_of(headers=[("x-request-id", value) for value in values])
    replaced = {request_id(scope) for _ in range(100)}
    assert len(replaced) == 100
    assert all(one.startswith("req-") and len(one) < 64 for one in replaced)


def test_work_is_cancelled_when_the_client_leaves() -> None:
    async def main() -> list[str]:
        events: list[str] = []
        client = Client()

        async def work() -> None:
            client.left.set()
            try:
                await asyncio.Event().wait()
            finally:
                events.append("cleaned up")

        with pytest.raises(ClientDisconnectError):
            await run_until_disconnect(client.receive, work())
        return events

    assert asyncio.run(main()) == ["cleaned up"]


def test_work_that_ends_returns_and_leaves_nobody_behind() -> None:
    async def main() -> None:
        async def work() -> int:
            await asyncio.sleep(0)
            return 7

        assert await run_until_disconnect(Client().receive, work()) == 7
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_what_work_raises_is_raised() -> None:
    async def main() -> None:
        async def work() -> None:
            await asyncio.sleep(0)
            raise KeyError("x")

        with pytest.raises(KeyError):
            await run_until_disconnect(Client().receive, work())

    asyncio.run(main())


def test_a_cancel_from_outside_stays_a_cancel() -> None:
    async def main() -> None:
        async def work() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(run_until_disconnect(Client().receive, work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_disconnect_after_the_last_write_is_no_cancel() -> None:
    async def main() -> str:
        client = Client()

        async def work() -> str:
            await client.send({"type": "http.response.start", "status": 200, "headers": []})
            client.left.set()
            await client.send({"type": "http.response.body", "body": b""})
            return "done"

        return await run_until_disconnect(client.receive, work())

    assert asyncio.run(main()) == "done"


def test_unknown_paths_and_methods_have_openais_shape() -> None:
    async def main() -> tuple[Client, Client]:
        lost, wrong = Client(), Client()
        await send_not_found(lost.send, "/" + "x" * 10_000)
        await send_method_not_allowed(wrong.send, "BREW" * 100, ["GET", "POST"])
        return lost, wrong

    lost, wrong = asyncio.run(main())
    assert (lost.status, json.loads(lost.body)["error"]["code"]) == (404, "unknown_url")
    assert len(lost.body) < 1000
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, POST")
    assert json.loads(wrong.body)["error"]["code"] == "method_not_allowed"
