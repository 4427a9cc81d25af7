"""How does a test run a vLLM engine in a process of its own?"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

MARK = "result: "


def result_of(module: str, how: dict[str, Any], timeout_s: float = 280.0) -> dict[str, Any]:
    """Return what the module's `main` prints. Raises AssertionError with its log when it fails."""
    env = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(how)],
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return result


def print_result(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Print what `run` makes of the command line's JSON object."""
    sys.stdout.write(f"\n{MARK}{json.dumps(run(json.loads(sys.argv[1])))}\n")
