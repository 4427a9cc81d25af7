"""Does `vllm serve` with the plugin serve, count by tier, and let go of clients that leave?"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

START_S = 400.0


class Server:
    """A vLLM API server in a process group of its own."""

    def __init__(self, model: str, log: Path, *args: str, **env: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", model, "--served-model-name", "m", "--port", str(port)]
        command += ["--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager", *args]
        with log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", **env},
            )

    def wait(self) -> None:
        """Return when it serves. Raises AssertionError with its log when it does not come up."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                if urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200:
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(1.0)
        raise AssertionError(self.log.read_text(encoding="utf-8")[-4000:])

    def stop(self) -> None:
        """End the server and whatever it has started."""
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def open(self, priority: int, **body: Any) -> Any:
        """Send a completion; the caller reads and closes."""
        data = {"model": "m", "prompt": "Once upon a time", "temperature": 0.0, **body}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(data).encode(),
            {"content-type": "application/json", "x-vllm-priority": str(priority)},
        )
        return urllib.request.urlopen(request, timeout=120)

    def metric(self, name: str) -> dict[str, float]:
        """Return a metric's value by tier."""
        text = urllib.request.urlopen(f"{self.url}/metrics", timeout=30).read().decode()
        found = re.findall(rf'^headway:{name}{{[^}}]*tier="(\w+)"[^}}]*}} (\S+)$', text, re.M)
        return {tier: float(value) for tier, value in found}


@pytest.fixture(scope="module")
def server(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that was asked for the plugin by the environment alone."""
    log = tmp_path_factory.mktemp("vllm") / "log"
    server = Server(model, log, HEADWAY_VLLM="1")
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def test_requests_are_counted_by_tier(server: Server) -> None:
    before = server.metric("admissions_total")
    xargs = {"headway_tenant": "acme", "headway_weight": 2.0, "headway_deadline_s": 60.0}
    for priority, number in ((-1, 1), (0, 2), (1, 3)):
        for _ in range(number):
            with server.open(priority, max_tokens=4, vllm_xargs=xargs) as answer:
                assert json.load(answer)["usage"]["completion_tokens"] == 4
    after = server.metric("admissions_total")
    counted = {tier: after[tier] - before.get(tier, 0.0) for tier in after}
    assert counted == {"critical": 1.0, "normal": 2.0, "bulk": 3.0}
    assert server.metric("num_requests_waiting")["bulk"] == 0.0
    assert server.metric("batched_tokens_total")["bulk"] > 0.0


def test_a_client_that_leaves_frees_its_slot(server: Server) -> None:
    stream = server.open(1, max_tokens=400, ignore_eos=True, stream=True)
    stream.readline()
    stream.close()
    until = time.monotonic() + 60.0
    while server.metric("num_requests_running")["bulk"] and time.monotonic() < until:
        with server.open(0, max_tokens=1) as answer:
            answer.read()
    assert server.metric("num_requests_running")["bulk"] == 0.0


def test_an_engine_that_is_not_supported_says_how_to_go_back(model: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = Server(model, log, "--scheduler-cls", "headway.vllm_plugin.QoSScheduler")
    try:
        server.process.wait(START_S)
        text = log.read_text(encoding="utf-8")
        assert "it needs --scheduling-policy priority" in text
        assert "The way back: start vLLM without --scheduler-cls" in text
    finally:
        if server.process.poll() is None:
            server.stop()
