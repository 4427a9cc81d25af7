"""Is what is recorded of vLLM what is installed?"""

import json
from pathlib import Path

import vllm

from headway.vllm_plugin.compat import check_vllm
from tests_vllm.record import recorded

RECORDED = Path(__file__).parents[1] / "tests" / "vllm_plugin" / "recorded"


def test_the_installed_vllm_is_accepted() -> None:
    check_vllm(vllm.__version__)


def test_the_record_is_faithful() -> None:
    now = recorded()
    path = RECORDED / f"vllm_{now['version'].replace('.', '_')}.json"
    kept = json.loads(path.read_text(encoding="utf-8"))
    assert kept.keys() == now.keys()
    for name, entry in now["members"].items():
        for kind, values in entry.items():
            assert sorted(kept["members"][name][kind]) == sorted(values), name
