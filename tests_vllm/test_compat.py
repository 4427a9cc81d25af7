"""Is what is recorded of vLLM what is installed?"""

import json
import subprocess
import sys
from pathlib import Path

from headway.vllm_plugin.compat import check_installed
from tests_vllm.record import recorded

RECORDED = Path(__file__).parents[1] / "tests" / "vllm_plugin" / "recorded"


def test_the_installed_vllm_is_accepted() -> None:
    check_installed()


def test_the_record_is_faithful() -> None:
    now = recorded()
    path = RECORDED / f"vllm_{now['version'].replace('.', '_')}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept == now


def test_a_vllm_without_a_name_that_is_imported_is_refused_with_the_way_back() -> None:
    program = (
        "import vllm.v1.core.sched.async_scheduler, vllm.v1.core.sched.interface as interface\n"
        "del interface.PauseState\n"
        "from headway.vllm_plugin import QoSScheduler"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    refusal = done.stderr.splitlines()[-1]
    assert "IncompatibleError: scheduler_cls: vLLM has no vllm.v1.core.sched.interface" in refusal
    assert "start vLLM without --scheduler-cls" in refusal
