"""The gateway as a process."""

import signal
import subprocess
import sys
from itertools import takewhile
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

PROGRAM = """
import logging
from headway.config import Config, GatewayConfig, NodeConfig
from headway.gateway.serve import run_gateway
logging.basicConfig(level=logging.INFO)
node = NodeConfig(name="n0", url="http://127.0.0.1:9")
run_gateway(Config(gateway=GatewayConfig(port=0, drain_s=1), nodes=(node,)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            # The node is found to be down only after the server listens.
            lines = list(takewhile(lambda line: "is down" not in line, process.stderr))
            assert any("OPEN MODE" in line for line in lines)
            port = next(line.rpartition(":")[2].strip() for line in lines if "listening on" in line)
            with pytest.raises(HTTPError) as caught:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=10)
            assert caught.value.code == 503
            caught.value.close()
            process.send_signal(number)
            assert process.wait(20) == 0
        finally:
            process.kill()
