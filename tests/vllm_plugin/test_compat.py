"""Does the plugin notice a vLLM that it cannot work with, and say so usefully?"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headway.vllm_plugin.compat import (
    IncompatibleError,
    changes,
    check_engine,
    check_vllm,
    missing,
)
from headway.vllm_plugin.interface import found_of, look_up
from headway.vllm_plugin.members import MEMBERS, REGISTER_MEMBERS, Member
from tests.vllm_plugin.recorded_vllm import RECORDED, RecordedVllm, key

NEWEST = RECORDED[-1]


def test_two_releases_are_recorded() -> None:
    assert len(RECORDED) >= 2


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_releases_are_accepted(path: Path) -> None:
    vllm = RecordedVllm(path)
    check_vllm(vllm.version, vllm.look)
    check_vllm(f"{vllm.version}.1+cpu", vllm.look)
    assert missing(REGISTER_MEMBERS, vllm.look) == []


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_a_member_that_is_gone_is_named_once(member: Member) -> None:
    vllm = RecordedVllm(NEWEST)
    for name in [name for name in vllm.members if f"{name}.".startswith(f"{key(member)}.")]:
        del vllm.members[name]
    assert missing(MEMBERS, vllm.look) == [f"vLLM has no {member.full_name}"]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_each_thing_that_is_gone_of_a_member_is_named(member: Member) -> None:
    def lacking(**entry: Any) -> list[str]:
        vllm = RecordedVllm(NEWEST)
        vllm.members[key(member)].update(entry)
        return missing(MEMBERS, vllm.look)

    recorded = RecordedVllm(NEWEST).members[key(member)]
    if not recorded.get("open_ended"):
        for name in member.parameters:
            others = [other for other in recorded["parameters"] if other != name]
            assert lacking(parameters=others) == [f"{member.full_name} takes no {name}"]
    for name in member.fields:
        others = [other for other in recorded["fields"] if other != name]
        assert lacking(fields=others) == [f"{member.full_name} has no {name}"]
    for name, least in member.calls:
        reads = {**recorded["reads"], name: least - 1}
        (text,) = lacking(reads=reads)
        assert text.startswith(f"{member.full_name} uses {name} {least - 1} times")


def test_what_is_called_in_place_of_vllms_is_given_nothing_else() -> None:
    vllm = RecordedVllm(NEWEST)
    name = "vllm.v1.core.sched.scheduler:Scheduler._reserve_prefill_lookahead"
    vllm.members[name]["parameters"].append("num_drafts")
    (text,) = missing(MEMBERS, vllm.look)
    assert text.endswith("_reserve_prefill_lookahead takes num_drafts, which headway's does not")


def test_a_queue_that_must_do_more_is_refused() -> None:
    vllm = RecordedVllm(NEWEST)
    vllm.members["vllm.v1.core.sched.request_queue:RequestQueue"]["abstract"].append("rotate")
    (text,) = missing(MEMBERS, vllm.look)
    assert text.endswith("RequestQueue asks for rotate, which headway's has not")


def test_an_answer_of_another_form_is_refused() -> None:
    vllm = RecordedVllm(NEWEST)
    name = "vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks"
    vllm.members[name]["returns"] = "CacheHit"
    (text,) = missing(MEMBERS, vllm.look)
    assert "get_computed_blocks returns CacheHit, not tuple[KVCacheBlocks, int" in text


class Base:
    """Like a class of vLLM's: it stores some attributes, and reads others of what it is given."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.first, self.second = config.pair
        config.written = config.policy

    @property
    def computed(self) -> int:
        return 0

    def work(self) -> Any:
        for _ in range(2):
            self.helper()
        return [self.helper() for _ in range(2)], self.other

    def helper(self) -> "tuple[Path, int]":
        return Path(), 0

    other: Callable[[], None]


class Derived(Base):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        lazily = lambda: self.late  # noqa: E731 - makes `self` a variable of two functions
        self.late: Any = lazily


def test_attributes_that_are_only_read_of_others_are_none_of_its_own() -> None:
    fields = found_of(Derived).fields
    assert fields.issuperset({"config", "first", "second", "computed", "work", "late"})
    assert fields.isdisjoint({"policy", "pair", "written", "other"})


def test_what_a_function_uses_is_counted_with_its_inner_ones() -> None:
    member = Member(Base.__module__, "Base.work", calls=(("helper", 2), ("other", 1)))
    assert changes(member, found_of(Base.work)) == []
    assert changes(Member("", "", calls=(("helper", 3),)), found_of(Base.work)) == [
        "uses helper 2 times, not 3"
    ]


def test_returns_and_what_is_no_function_are_looked_up() -> None:
    assert found_of(Base.helper).returns == "tuple[Path, int]"
    assert look_up(Member("math", "pi")) is not None
    assert look_up(Member("math", "tau.of")) is None
    assert look_up(Member("no.such.module", "x")) is None


FOREIGN = {
    "nothing of it": {},
    "a part of it": {
        "v1/__init__.py": "",
        "v1/request.py": "class Request: ...",
    },
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("module", ["headway.vllm_plugin", "headway.vllm_plugin.scheduler"])
def test_a_foreign_vllm_is_refused_before_it_is_imported_from(
    tmp_path: Path, files: dict[str, str], module: str
) -> None:
    package = tmp_path / "vllm"
    for name, text in {"__init__.py": '__version__ = "0.32.0"', **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", f"from {module} import QoSScheduler"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    refusal = done.stderr.splitlines()[-1]
    assert refusal.startswith("headway.vllm_plugin.compat.IncompatibleError")
    assert "vLLM has no vllm.v1.core.sched.async_scheduler.AsyncScheduler" in refusal
    assert "start vLLM without --scheduler-cls" in refusal


@pytest.mark.parametrize("version", ["0.30.2", "0.33.0", "1.0.0", "0.9"])
def test_a_release_outside_the_range_is_refused_with_the_way_back(version: str) -> None:
    vllm = RecordedVllm(NEWEST)
    with pytest.raises(IncompatibleError) as caught:
        check_vllm(version, vllm.look)
    assert version in str(caught.value)
    assert "without --scheduler-cls" in str(caught.value)


def test_a_build_from_source_is_judged_by_its_members() -> None:
    vllm = RecordedVllm(NEWEST)
    check_vllm("dev", vllm.look)
    del vllm.members["vllm.v1.core.sched.scheduler:Scheduler._preempt_request"]
    with pytest.raises(IncompatibleError, match="_preempt_request"):
        check_vllm("dev", vllm.look)


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
        "kinds": ("FullAttentionManager",),
        **changes,
    }
    groups = [type(kind, (), {})() for kind in settings.pop("kinds")]
    coordinator = SimpleNamespace(single_type_managers=groups)
    parallel = SimpleNamespace(pipeline_parallel_size=settings.pop("pipeline_parallel_size"))
    model = SimpleNamespace(
        runner_type=settings.pop("runner_type"), is_diffusion=settings.pop("is_diffusion")
    )
    return SimpleNamespace(
        vllm_config=SimpleNamespace(parallel_config=parallel, model_config=model),
        kv_cache_manager=SimpleNamespace(coordinator=coordinator),
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
        ({"kinds": ("SlidingWindowManager",)}, "disable-hybrid-kv-cache-manager"),
        ({"kinds": ("FullAttentionManager",) * 2}, "disable-hybrid-kv-cache-manager"),
    ],
)
def test_what_is_not_supported_is_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(IncompatibleError, match=text):
        check_engine(engine(**changes))
