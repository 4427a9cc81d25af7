"""Does the engine's process start, refuse, drain and end as its supervisor expects?"""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.options import EngineOptions
from headway.engine.serve import describe
from headway.wire.listen import open_socket

LONGEST_S = 30.0
FAST_S = 5.0


@contextmanager
def process(*, drain_s: float = LONGEST_S) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Run a fake engine's process on a free port; it serves when this returns."""
    with open_socket("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.engine.fake_engine_process", str(port), str(drain_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            deadline = time.monotonic() + LONGEST_S
            while not serves(port):
                assert child.poll() is None
                assert time.monotonic() < deadline
            yield child, port
        finally:
            child.kill()


def serves(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def begun_stream(port: int, max_tokens: int) -> Iterator[http.client.HTTPResponse]:
    """Give a stream whose first event has come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    fields = {"model": "fake", "prompt": "hi", "stream": True, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(fields | {"max_tokens": max_tokens}))
    response = connection.getresponse()
    try:
        assert response.readline().startswith(b"data: ")
        yield response
    finally:
        response.close()
        connection.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_first_signal_drains_and_ends_with_0(signum: signal.Signals) -> None:
    with process() as (child, port), begun_stream(port, max_tokens=100) as stream:
        child.send_signal(signum)
        assert stream.read().endswith(b"data: [DONE]\n\n")
        assert child.wait(LONGEST_S) == 0
        assert child.stdout is not None
        assert child.stdout.read() == "stopped in order\n"


def wait_until_closed(port: int) -> None:
    deadline = time.monotonic() + LONGEST_S
    while serves(port):
        assert time.monotonic() < deadline


def test_after_a_signal_nobody_new_is_taken() -> None:
    with process() as (child, port), begun_stream(port, max_tokens=200) as stream:
        child.send_signal(signal.SIGTERM)
        wait_until_closed(port)
        assert stream.read().endswith(b"data: [DONE]\n\n")
        assert child.wait(LONGEST_S) == 0


def test_who_is_not_done_in_time_is_told_so() -> None:
    with process(drain_s=0.2) as (child, port), begun_stream(port, max_tokens=4000) as stream:
        child.send_signal(signal.SIGTERM)
        last = stream.read().split(b"data: ")[-1]
        assert json.loads(last)["error"]["code"] == "engine_dead"
        assert child.wait(LONGEST_S) == 0


def test_a_second_signal_ends_at_once() -> None:
    with process() as (child, port), begun_stream(port, max_tokens=4000):
        child.send_signal(signal.SIGTERM)
        wait_until_closed(port)
        began = time.monotonic()
        child.send_signal(signal.SIGTERM)
        assert child.wait(LONGEST_S) == 0
        assert time.monotonic() - began < FAST_S


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "no-such-model"], "no-such-model"),
        (["--set", "engine.nonsense=1"], "engine.nonsense"),
    ],
)
def test_a_refusal_is_one_line_and_code_2(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "headway", "engine", "--port", "0", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    refusal = ended.stderr.strip().splitlines()[-1]
    assert refusal.startswith("headway: ")
    assert said in refusal
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_a_refusal() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "tests.engine.fake_engine_process"]
        ended = subprocess.run(
            [*command, str(taken.getsockname()[1]), "1"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert "ConfigError: engine.port: cannot listen on 127.0.0.1" in ended.stderr


def test_what_was_measured_is_said() -> None:
    options = EngineOptions(calibrate=True)
    engine = LLMEngine.from_parts(FakeRunner(num_blocks=64), ByteTokenizer(), options)
    lines = describe(engine)
    assert "64 blocks, 1024 tokens" in lines[0]
    assert "ms for each token" in lines[1]
    assert [line.split(":")[0] for line in lines[2:]] == ["tier critical", "tier normal"]


@pytest.mark.parametrize(("most", "said"), [(32, True), (64, False)])
def test_that_whole_prompts_exceed_iterations_is_said(most: int, said: bool) -> None:
    options = EngineOptions(enable_chunked_prefill=False, max_num_batched_tokens=most)
    runner = FakeRunner(num_blocks=64, max_model_len=64)
    last = describe(LLMEngine.from_parts(runner, ByteTokenizer(), options))[-1]
    assert ("prompts of more than 32 tokens" in last) == said
