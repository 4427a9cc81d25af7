"""Does the engine stop working for a client that has left, wherever its request stands? (C1)"""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.server_stage import GatedRunner, Stage, reset, stage

LONG = {"max_tokens": 2000, "ignore_eos": True}
STEPS_AFTER_LEAVING = 3

FIN = socket.socket.close
Leave = Callable[[socket.socket], None]


def steps_until_idle(one: Stage) -> int:
    """Give steps one at a time until the engine has nothing to do; the server turns in between."""
    given = 0
    while not one.idle:
        one.get("/health")
        if one.runner.stands:
            given += 1
            assert given < 100, "the engine goes on for a client that has left"
            one.runner.give_step()
            one.until(lambda: _settled(one))
    return given


def _settled(one: Stage) -> bool:
    return one.runner.stands or one.idle


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [FIN, reset], ids=["fin", "rst"])
@pytest.mark.parametrize("steps", [0, 1, 2, 7], ids=["queued", "prefill", "first", "middle"])
def test_work_stops_within_a_few_steps(stream: bool, leave: Leave, steps: int) -> None:
    # A prompt of two chunks: the second step draws the first token.
    with stage(engine={"max_num_batched_tokens": 32}) as one:
        one.runner.close_gate()
        connection = one.connect({**LONG, "prompt": "x" * 48, "stream": stream})
        for _ in range(steps):
            one.runner.wait_for_step()
            one.runner.give_step()
        one.runner.wait_for_step()
        leave(connection)
        assert steps_until_idle(one) <= STEPS_AFTER_LEAVING


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_that_waits_for_a_slot_leaves_the_queue(stream: bool) -> None:
    with stage(engine={"max_num_seqs": 1}) as one:
        one.runner.close_gate()
        first = one.connect({**LONG, "stream": stream})
        one.runner.wait_for_step()
        second = one.connect({**LONG, "stream": stream})
        one.until(lambda: one.get("/metrics").status == 200 and _num_open(one) == 2)
        second.close()
        one.runner.give_step()
        one.until(lambda: _num_open(one) == 1)
        first.close()
        assert steps_until_idle(one) <= STEPS_AFTER_LEAVING


def _num_open(one: Stage) -> int:
    """Sequences in the engine, after giving it the step that lets it take commands."""
    if one.runner.stands:
        one.runner.give_step()
    stats = one.engine.stats()
    return sum(stats.num_running) + sum(stats.num_waiting)


def test_all_choices_of_all_prompts_stop() -> None:
    with stage() as one:
        one.runner.close_gate()
        connection = one.connect({**LONG, "prompt": ["a", "b", "c"], "n": 3, "stream": True})
        one.runner.wait_for_step()
        connection.close()
        assert steps_until_idle(one) <= STEPS_AFTER_LEAVING + 3


def test_leaving_is_counted_as_an_abort_and_a_normal_close_is_not() -> None:
    with stage() as one:
        connection = one.connect({"max_tokens": 3, "stream": True})
        with connection, connection.makefile("rb") as reader:
            assert any(line.startswith(b"data: [DONE]") for line in reader)
        one.until(lambda: one.idle)
        assert one.metric("vllm:request_success_total", finished_reason="abort") == 0
        one.runner.close_gate()
        connection = one.connect({**LONG, "stream": True})
        one.runner.wait_for_step()
        connection.close()
        steps_until_idle(one)
        assert one.metric("vllm:request_success_total", finished_reason="abort") == 1


def test_aborting_one_request_of_an_id_leaves_the_others() -> None:
    with stage() as one:
        one.runner.close_gate()
        same = "x-request-id: abc"
        left, stays = (one.connect({"max_tokens": 20, "stream": True}, same) for _ in range(2))
        one.runner.wait_for_step()
        left.close()
        one.runner.open_gate()
        with stays, stays.makefile("rb") as reader:
            assert any(line.startswith(b"data: [DONE]") for line in reader)


def test_a_reader_that_stops_is_cut_and_frees_its_slot() -> None:
    runner = GatedRunner(num_blocks=512, max_model_len=8192)
    server: dict[str, Any] = {"write_timeout_s": 0.3}
    with stage(runner=runner, server=server, send_buffer=4096) as one:
        fields = {"max_tokens": 4000, "ignore_eos": True, "logprobs": 20, "stream": True}
        connection = one.connect(fields)
        with connection:
            # The head is read, then nothing more.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            assert connection.recv(12) == b"HTTP/1.1 200"
            one.until(lambda: one.idle)
            # What the kernel still holds, then the end of the connection and not of the stream.
            left = b"".join(iter(lambda: connection.recv(65536), b""))
            assert b"[DONE]" not in left


def test_a_late_reader_gets_everything() -> None:
    with stage(send_buffer=4096) as one:
        fields = {"max_tokens": 300, "ignore_eos": True, "return_token_ids": True}
        whole = one.complete(**fields, temperature=0).json()["choices"][0]["token_ids"]
        with one.connect({**fields, "temperature": 0, "stream": True}) as connection:
            assert connection.recv(12) == b"HTTP/1.1 200"
            one.until(lambda: one.idle)
            with connection.makefile("rb") as reader:
                text = b"".join(iter(reader.readline, b"0\r\n"))
        assert text.count(b"[DONE]") == 1
        assert str(whole[-1]).encode() in text
