"""Does the plugin notice a vLLM that it cannot work with, and say so usefully?"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.vllm_plugin.compat import MEMBERS, IncompatibleError, check_engine, check_vllm
from tests.vllm_plugin.recorded_vllm import RECORDED, RecordedVllm

NEWEST = RECORDED[-1]


def test_two_releases_are_recorded() -> None:
    assert len(RECORDED) >= 2


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_releases_are_accepted(path: Path) -> None:
    vllm = RecordedVllm(path)
    check_vllm(vllm.version, vllm.load)
    check_vllm(f"{vllm.version}.1+cpu", vllm.load)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_a_member_that_is_gone_is_named(member: Any) -> None:
    vllm = RecordedVllm(NEWEST)
    del vllm.members[f"{member.module}:{member.name}"]
    for key in [key for key in vllm.members if key.startswith(f"{member.module}:{member.name}.")]:
        del vllm.members[key]
    with pytest.raises(IncompatibleError, match=member.name.rpartition(".")[2]):
        check_vllm(vllm.version, vllm.load)


@pytest.mark.parametrize("kind", ["parameters", "fields"])
def test_each_parameter_and_field_that_is_gone_is_named(kind: str) -> None:
    tried = 0
    for member in MEMBERS:
        for name in getattr(member, kind):
            vllm = RecordedVllm(NEWEST)
            entry = vllm.members[f"{member.module}:{member.name}"]
            entry[kind] = [other for other in entry[kind] if other != name]
            if kind == "fields" and f"{member.module}:{member.name}.{name}" in vllm.members:
                continue
            with pytest.raises(IncompatibleError, match=f"{member.name} .* {name}"):
                check_vllm(vllm.version, vllm.load)
            tried += 1
    assert tried > 10


@pytest.mark.parametrize("version", ["0.30.2", "0.33.0", "1.0.0", "0.9"])
def test_a_release_outside_the_range_is_refused_with_the_way_back(version: str) -> None:
    vllm = RecordedVllm(NEWEST)
    with pytest.raises(IncompatibleError) as caught:
        check_vllm(version, vllm.load)
    assert version in str(caught.value)
    assert "without --scheduler-cls" in str(caught.value)


def test_a_build_from_source_is_judged_by_its_members() -> None:
    vllm = RecordedVllm(NEWEST)
    check_vllm("dev", vllm.load)
    del vllm.members["vllm.v1.core.sched.scheduler:Scheduler._preempt_request"]
    with pytest.raises(IncompatibleError, match="_preempt_request"):
        check_vllm("dev", vllm.load)


def engine(**changes: Any) -> Any:
    """An engine that is supported, but for `changes`."""
    settings: dict[str, Any] = {
        "policy": "priority",
        "connector": None,
        "ec_connector": None,
        "pipeline_parallel_size": 1,
        "is_encoder_decoder": False,
        "has_mamba_layers": False,
        "runner_type": "generate",
        "is_diffusion": False,
        **changes,
    }
    parallel = SimpleNamespace(pipeline_parallel_size=settings.pop("pipeline_parallel_size"))
    model = SimpleNamespace(
        runner_type=settings.pop("runner_type"), is_diffusion=settings.pop("is_diffusion")
    )
    return SimpleNamespace(
        vllm_config=SimpleNamespace(parallel_config=parallel, model_config=model),
        **{**settings, "policy": SimpleNamespace(value=settings["policy"])},
    )


def test_a_usual_engine_is_accepted() -> None:
    check_engine(engine())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"policy": "fcfs"}, "--scheduling-policy priority"),
        ({"connector": object()}, "KV connectors"),
        ({"ec_connector": object()}, "encoder connectors"),
        ({"pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"has_mamba_layers": True}, "Mamba"),
        ({"runner_type": "pooling"}, "generate text"),
        ({"is_diffusion": True}, "generate text"),
    ],
)
def test_what_is_not_supported_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(IncompatibleError, match=text):
        check_engine(engine(**changes))
