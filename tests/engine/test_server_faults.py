"""Is a failing or full engine told to its callers, and never hidden? (C7, I0)"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import openai
import pytest

from headway.engine.async_engine import AsyncEngine
from headway.engine.stats import EngineStats
from tests.engine.server_stage import MODEL, GatedRunner, Stage, reset, stage

LONG = {"max_tokens": 400, "ignore_eos": True}


def test_an_engine_that_dies_before_the_first_token_is_503() -> None:
    runner = GatedRunner(num_blocks=64, dies_at_step=1)
    with stage(runner=runner, stays_idle=False) as one:
        for fields in ({}, {"stream": True}):
            answer = one.complete(**LONG, **fields)
            assert (answer.status, answer.error["code"]) == (503, "engine_dead")
        assert one.get("/health").status == 503
        assert one.get("/metrics").status == 200
        assert one.get("/v1/models").status == 200


def test_an_engine_that_dies_in_the_middle_ends_the_stream_with_an_error_event() -> None:
    runner = GatedRunner(num_blocks=64, dies_at_step=5)
    with stage(runner=runner, stays_idle=False) as one:
        runner.close_gate()
        connection = one.connect({**LONG, "stream": True})
        for _ in range(4):
            runner.wait_for_step()
            runner.give_step()
        runner.wait_for_step()
        with connection, connection.makefile("rb") as reader:
            lines = [reader.readline()]
            runner.open_gate()
            lines += iter(reader.readline, b"0\r\n")
        data = [line for line in lines if line.startswith(b"data: ")]
        assert b'"error"' in data[-1]
        assert b"engine_dead" in data[-1]
        assert not any(b"[DONE]" in line or b'finish_reason":"' in line for line in data)


def test_the_official_client_raises_at_an_error_event() -> None:
    runner = GatedRunner(num_blocks=64, scripts={tuple(b"hi"): tuple(b"abcd")}, poison=_poison("d"))
    with stage(runner=runner) as one:
        client = openai.OpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0)
        with client, pytest.raises(openai.APIError):
            list(client.completions.create(model=MODEL, prompt="hi", stream=True, max_tokens=9))


def _poison(character: str) -> frozenset[int]:
    return frozenset({ord(character)})


def test_a_request_that_fails_alone_leaves_the_others() -> None:
    runner = GatedRunner(num_blocks=64, scripts={tuple(b"hi"): tuple(b"abcd")}, poison=_poison("d"))
    with stage(runner=runner) as one:
        failed = one.complete(max_tokens=9)
        assert (failed.status, failed.error["code"]) == (500, "internal_error")
        assert one.complete(prompt="ho", max_tokens=2, seed=1).status == 200
        assert one.metric("vllm:request_success_total", finished_reason="error") == 1


def _let_in(one: Stage, num_sequences: int) -> None:
    """Give steps until so many sequences are in the engine; then the next stands at the gate."""

    def are_in() -> bool:
        one.runner.give_step()
        one.runner.wait_for_step()
        stats = one.engine.stats()
        return sum(stats.num_running) + sum(stats.num_waiting) == num_sequences

    one.until(are_in)


@contextmanager
def _short_queue(max_num_seqs: int = 256, num_blocks: int = 512) -> Iterator[Stage]:
    """Serve with a queue of two, and no step that is not given."""
    with stage(
        runner=GatedRunner(num_blocks=num_blocks),
        engine={"max_num_seqs": max_num_seqs},
        server={"max_num_queued_reqs": 2},
    ) as one:
        one.runner.close_gate()
        yield one


def _check_answered(one: Stage, open_ones: Sequence[socket.socket]) -> None:
    one.runner.open_gate()
    for connection in open_ones:
        with connection:
            assert connection.recv(12) == b"HTTP/1.1 200"


def _fill_memory(one: Stage) -> list[socket.socket]:
    """Ask for more than 16 blocks hold; return when a step has left two waiting."""
    long = {**LONG, "max_tokens": 120}
    open_ones = [one.connect({**long, "prompt": letter * 100}) for letter in "abcd"]
    _let_in(one, 4)
    one.runner.give_step()
    one.runner.wait_for_step()
    assert one.engine.stats().num_passed_over >= 2
    return open_ones


def test_a_full_queue_is_503_with_a_time_to_retry() -> None:
    with _short_queue(max_num_seqs=1) as one:
        open_ones = [one.connect(LONG) for _ in range(3)]
        _let_in(one, 3)
        answer = one.chat(max_tokens=2)
        assert (answer.status, answer.error["code"]) == (503, "server_overloaded")
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        assert int(answer.headers["retry-after-ms"]) >= 1
        assert one.metric("vllm:admission_rejections_total", reason="max_num_queued_reqs") == 1
        assert one.get("/health").status == 200
        _check_answered(one, open_ones)


def test_where_memory_is_short_those_that_a_step_left_waiting_fill_the_queue() -> None:
    with _short_queue(num_blocks=16) as one:
        open_ones = _fill_memory(one)
        assert one.chat(max_tokens=2).status == 503
        _check_answered(one, open_ones)


def test_siblings_of_one_request_do_not_fill_the_queue() -> None:
    with _short_queue(max_num_seqs=8) as one:
        open_ones = [one.connect({**LONG, "n": 6})]
        one.runner.wait_for_step()
        assert sum(one.engine.stats().num_waiting) >= 2
        open_ones.append(one.connect(LONG))
        _let_in(one, 7)
        _check_answered(one, open_ones)


def test_those_that_left_do_not_fill_the_queue() -> None:
    with _short_queue(num_blocks=16) as one:
        open_ones = _fill_memory(one)
        for connection in open_ones:
            reset(connection)
        one.runner.open_gate()
        one.until(lambda: one.idle)
        assert one.engine.stats().num_passed_over == 0
        assert one.chat(max_tokens=2).status == 200


def test_who_finds_a_seat_in_the_next_step_does_not_fill_the_queue() -> None:
    with _short_queue(max_num_seqs=8) as one:
        open_ones = [one.connect(LONG)]
        one.runner.wait_for_step()
        open_ones += [one.connect(LONG) for _ in range(4)]
        _let_in(one, 5)
        assert one.engine.stats().num_passed_over == 0
        open_ones += [one.connect(LONG) for _ in range(5)]
        _let_in(one, 10)
        assert one.chat(max_tokens=2).status == 503
        _check_answered(one, open_ones)


class BrokenNumbers(AsyncEngine):
    """An engine with a number that cannot be shown."""

    def stats(self) -> EngineStats:
        """Return what breaks whoever adds it up."""
        return replace(super().stats(), num_finished={"stop": cast("int", "many")})


def test_a_failing_metric_reaches_only_the_page_of_metrics() -> None:
    with stage(kind=BrokenNumbers) as one:
        assert (one.get("/metrics").status, one.get("/metrics").error["code"]) == (
            500,
            "internal_error",
        )
        assert one.chat(max_tokens=2).status == 200
        assert one.chat(max_tokens=2, stream=True).events[-1] == "[DONE]"
        assert one.get("/health").status == 200
