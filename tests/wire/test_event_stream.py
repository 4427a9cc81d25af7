"""Does a stream reach a reader, beat while it is quiet, and let go of one that does not read?"""

import asyncio

import pytest
from starlette.types import Scope

from headway.wire.event_stream import ABORT_EXTENSION, EventStream, WriteTimeoutError
from headway.wire.sse import COMMENT, DONE, frame
from tests.wire.asgi import Client, scope_of

LONG_S = 30.0
SHORT_S = 0.01


def abortable(aborted: list[str]) -> Scope:
    scope = scope_of()
    scope["extensions"] = {ABORT_EXTENSION: {"abort": lambda: aborted.append("aborted")}}
    return scope


def test_events_arrive_with_the_headers_that_proxies_need() -> None:
    async def main() -> Client:
        client = Client()
        extra = [(b"x-request-id", b"r")]
        async with EventStream(
            scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=LONG_S, headers=extra
        ) as stream:
            await stream.start()
            await stream.event(b"1")
            await stream.write(frame(b"2") + frame(b"3"))
            await stream.finish()
        return client

    client = asyncio.run(main())
    assert client.body == frame(b"1") + frame(b"2") + frame(b"3") + DONE
    assert client.complete
    assert client.headers["content-type"].startswith("text/event-stream")
    assert client.headers["cache-control"] == "no-cache"
    assert client.headers["x-accel-buffering"] == "no"
    assert client.headers["x-request-id"] == "r"
    assert "content-encoding" not in client.headers


def test_a_stream_that_waits_too_long_starts_by_itself() -> None:
    async def main() -> Client:
        client = Client()
        async with EventStream(
            scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=LONG_S
        ) as stream:
            stream.start_within(SHORT_S)
            while not client.body:
                client.news.clear()
                await client.news.wait()
            assert stream.started
            await stream.event(b"1")
            await stream.finish()
        return client

    client = asyncio.run(main())
    assert client.body == COMMENT + frame(b"1") + DONE
    assert [message["type"] for message in client.sent].count("http.response.start") == 1
    assert client.complete


def test_a_stream_that_started_does_not_start_again() -> None:
    async def main() -> Client:
        client = Client()
        async with EventStream(
            scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=LONG_S
        ) as stream:
            stream.start_within(SHORT_S)
            await stream.start()
            await asyncio.sleep(2 * SHORT_S)
            await stream.finish()
        return client

    client = asyncio.run(main())
    assert client.body == DONE
    assert [message["type"] for message in client.sent].count("http.response.start") == 1


def test_comments_are_sent_while_nothing_comes() -> None:
    async def main() -> Client:
        client = Client()
        async with EventStream(
            scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=SHORT_S
        ) as stream:
            await stream.start()
            while client.body.count(COMMENT) < 3:
                client.news.clear()
                await client.news.wait()
            await stream.event(b"1")
            await stream.finish()
        return client

    client = asyncio.run(main())
    assert client.body.replace(COMMENT, b"") == frame(b"1") + DONE


@pytest.mark.parametrize("heartbeat_s", [LONG_S, SHORT_S])
def test_a_reader_that_stops_is_cut(heartbeat_s: float) -> None:
    async def main() -> list[str]:
        client, aborted = Client(), list[str]()

        async def run() -> None:
            async with EventStream(
                abortable(aborted), client.send, write_timeout_s=SHORT_S, heartbeat_s=heartbeat_s
            ) as stream:
                await stream.start()
                client.reads.clear()
                await stream.event(b"1")

        with pytest.raises(WriteTimeoutError):
            await run()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return aborted

    assert asyncio.run(main()) == ["aborted"]


def test_a_reader_that_does_not_even_read_heartbeats_is_cut() -> None:
    async def main() -> list[str]:
        client, aborted = Client(), list[str]()

        async def run() -> None:
            async with EventStream(
                abortable(aborted), client.send, write_timeout_s=SHORT_S, heartbeat_s=SHORT_S
            ) as stream:
                await stream.start()
                client.reads.clear()
                await asyncio.Event().wait()

        with pytest.raises(WriteTimeoutError):
            await run()
        return aborted

    assert asyncio.run(main()) == ["aborted"]


def test_a_reader_that_catches_up_in_time_is_kept() -> None:
    async def main() -> Client:
        client = Client()
        async with EventStream(
            scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=SHORT_S
        ) as stream:
            await stream.start()
            client.reads.clear()
            writing = asyncio.ensure_future(stream.event(b"1"))
            await client.blocked.wait()
            client.reads.set()
            await writing
            await stream.finish()
        return client

    assert asyncio.run(main()).body.replace(COMMENT, b"") == frame(b"1") + DONE


def test_a_stream_left_half_way_is_not_ended() -> None:
    async def main() -> Client:
        client = Client()

        async def run() -> None:
            async with EventStream(
                scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=LONG_S
            ) as stream:
                await stream.start()
                await stream.event(b"1")
                raise KeyError("x")

        with pytest.raises(KeyError):
            await run()
        return client

    client = asyncio.run(main())
    assert client.body == frame(b"1")
    assert not client.complete


def test_a_cancel_from_outside_stays_a_cancel() -> None:
    async def main() -> None:
        client = Client()

        async def run() -> None:
            async with EventStream(
                scope_of(), client.send, write_timeout_s=LONG_S, heartbeat_s=LONG_S
            ) as stream:
                await stream.start()
                await asyncio.Event().wait()

        task = asyncio.create_task(run())
        await client.news.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
