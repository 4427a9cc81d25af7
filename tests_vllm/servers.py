"""How does a test start vLLM's server, and our gateway in front of one?"""

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

START_S = 400.0
MODEL_NAME = "m"
PLUGIN = (
    "--scheduler-cls",
    "headway.vllm_plugin.QoSScheduler",
    "--scheduling-policy",
    "priority",
)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(happened: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return whether it happens within that time; what others do has no event to wait for."""
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


class Server:
    """A server in a process group of its own."""

    def __init__(self, command: Sequence[str], port: int, log: Path, **env: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = log
        with log.open("w", encoding="utf-8") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **env},
            )

    def __enter__(self) -> "Server":
        """Use it; it is stopped at the end."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def is_well(self) -> bool:
        """Return whether it says so itself."""
        try:
            return bool(urllib.request.urlopen(f"{self.url}/health", timeout=5).status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def wait(self) -> None:
        """Return when it serves. Raises AssertionError with its log when it does not come up."""
        done = eventually(lambda: self.is_well() or self.process.poll() is not None, START_S)
        if not done or self.process.poll() is not None:
            raise AssertionError(self.log.read_text(encoding="utf-8")[-4000:])

    def stop(self) -> None:
        """End the server and whatever it has started."""
        if self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def open(self, headers: dict[str, str] | None = None, **body: Any) -> Any:
        """Send a completion; the caller reads and closes. Raises HTTPError."""
        data = {"model": MODEL_NAME, "prompt": "Once upon a time", "temperature": 0.0, **body}
        request = urllib.request.Request(
            f"{self.url}/v1/completions",
            json.dumps(data).encode(),
            {"content-type": "application/json", **(headers or {})},
        )
        return urllib.request.urlopen(request, timeout=120)

    def ask(self, headers: dict[str, str] | None = None, **body: Any) -> Any:
        """Return the whole answer of a completion. Raises HTTPError."""
        with self.open(headers, **body) as answer:
            return json.load(answer)

    def samples(self, name: str) -> dict[str, float]:
        """Return a metric's values by its labels, as they are written."""
        text = urllib.request.urlopen(f"{self.url}/metrics", timeout=30).read().decode()
        found = re.findall(rf"^{name}(?:{{(.*)}})? (\S+)$", text, re.M)
        return {labels: float(value) for labels, value in found}

    def total(self, name: str) -> float:
        """Return a metric's sum over all labels."""
        return sum(self.samples(name).values())

    def by_tier(self, name: str) -> dict[str, float]:
        """Return a metric of ours by tier."""
        of_tier: dict[str, float] = {}
        for labels, value in self.samples(f"headway:{name}").items():
            tier = labels.partition('tier="')[2].partition('"')[0]
            of_tier[tier] = of_tier.get(tier, 0.0) + value
        return of_tier


def serve_vllm(model: str, log: Path, *args: str, port: int | None = None, **env: str) -> Server:
    """Start `vllm serve` with four slots; it is not ready yet."""
    port = free_port() if port is None else port
    command = ["vllm.entrypoints.openai.api_server"]
    command += ["--model", model, "--served-model-name", MODEL_NAME, "--port", str(port)]
    command += ["--max-model-len", "512", "--max-num-seqs", "4", "--enforce-eager", *args]
    return Server(command, port, log, **{"VLLM_CPU_KVCACHE_SPACE": "1", **env})


KEYS = {"acme": 1.0, "zeta": 3.0}
"""Tenants with their weights; the key of each is its name."""


def serve_gateway(node_url: str, folder: Path, max_inflight: int | None = None) -> Server:
    """Start our gateway in front of one node; its tenants may use every tier."""
    port = free_port()
    node: dict[str, Any] = {"name": "vllm", "url": node_url}
    if max_inflight is not None:
        node["max_inflight"] = max_inflight
    config = {
        "gateway": {"port": port},
        "nodes": [node],
        "keys": [
            {"key": name, "tenant": name, "weight": weight, "highest_tier": "critical"}
            for name, weight in KEYS.items()
        ],
    }
    path = folder / "headway.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    command = ["headway", "gateway", "--config", str(path)]
    return Server(command, port, folder / "gateway.log")


def as_tenant(name: str, tier: str = "normal") -> dict[str, str]:
    """Return the headers of a tenant's request to the gateway."""
    return {"authorization": f"Bearer {name}", "x-priority": tier}
