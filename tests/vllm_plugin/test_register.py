"""Does vLLM stay as it is unless our scheduler is asked for?"""

import sys
from functools import wraps
from types import ModuleType
from typing import Any

import pytest

from headway.vllm_plugin.compat import IncompatibleError
from headway.vllm_plugin.register import SCHEDULER, VARIABLE, is_ours, register, use_scheduler


def engine_args() -> Any:
    """A class like vLLM's `EngineArgs`."""

    class EngineArgs:
        def __init__(self, scheduler_cls: str | None = None) -> None:
            self.scheduler_cls = scheduler_cls
            self.scheduling_policy = "fcfs"

        def create_engine_config(self, usage: str = "") -> tuple[str, str | None, str]:
            return usage, self.scheduler_cls, self.scheduling_policy

    return EngineArgs


def test_asked_for_it_is_the_default() -> None:
    cls = engine_args()
    use_scheduler(cls)
    use_scheduler(cls)
    assert cls().create_engine_config("api") == ("api", SCHEDULER, "priority")


def wrapped_by_another_plugin(cls: Any) -> Any:
    original = cls.create_engine_config

    @wraps(original)
    def create_engine_config(self: Any, *args: Any) -> Any:
        return "theirs", *original(self, *args)

    cls.create_engine_config = create_engine_config
    return cls


def test_another_plugin_may_wrap_before() -> None:
    cls = wrapped_by_another_plugin(engine_args())
    use_scheduler(cls)
    assert cls().create_engine_config() == ("theirs", "", SCHEDULER, "priority")


def test_another_plugin_may_wrap_after(caplog: pytest.LogCaptureFixture) -> None:
    cls = engine_args()
    use_scheduler(cls)
    use_scheduler(wrapped_by_another_plugin(cls))
    with caplog.at_level("INFO"):
        assert cls().create_engine_config() == ("theirs", "", SCHEDULER, "priority")
    assert len(caplog.messages) == 1


def test_what_is_chosen_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The policy above all: somebody may have asked for the other."""
    cls = engine_args()
    use_scheduler(cls)
    with caplog.at_level("INFO"):
        cls().create_engine_config()
    (message,) = caplog.messages
    assert f"{VARIABLE}: --scheduler-cls {SCHEDULER} --scheduling-policy priority" in message
    assert "in place of vLLM's scheduler and policy fcfs" in message


def test_a_scheduler_that_was_named_stays(caplog: pytest.LogCaptureFixture) -> None:
    cls = engine_args()
    use_scheduler(cls)
    assert cls("their.Scheduler").create_engine_config() == ("", "their.Scheduler", "fcfs")
    assert caplog.messages == [f"{VARIABLE} changes nothing: --scheduler-cls names their.Scheduler"]


def vllm_with(monkeypatch: pytest.MonkeyPatch, engine_args: Any) -> None:
    """Let `vllm.engine.arg_utils` offer that as `EngineArgs`."""
    for name in ("vllm", "vllm.engine", "vllm.engine.arg_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.engine.arg_utils"].__dict__["EngineArgs"] = engine_args


@pytest.mark.parametrize(("value", "is_asked"), [("1", True), ("", False), ("0", False)])
def test_the_environment_asks(monkeypatch: pytest.MonkeyPatch, value: str, is_asked: bool) -> None:
    class EngineArgs:
        def __init__(self, scheduler_cls: Any = None, scheduling_policy: str = "fcfs") -> None:
            self.scheduler_cls, self.scheduling_policy = scheduler_cls, scheduling_policy

        def create_engine_config(self) -> Any:
            return self.scheduler_cls

    vllm_with(monkeypatch, EngineArgs)
    monkeypatch.setenv(VARIABLE, value)
    register()
    assert EngineArgs().create_engine_config() == (SCHEDULER if is_asked else None)


def test_a_vllm_that_cannot_be_asked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm_with(monkeypatch, type("EngineArgs", (), {}))
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(IncompatibleError, match=r"EngineArgs has no create_engine_config.*without"):
        register()


def test_ours_is_recognised_by_name_and_class() -> None:
    class Theirs: ...

    ours = type("QoSScheduler", (), {"__module__": "headway.vllm_plugin.scheduler"})
    assert is_ours(SCHEDULER)
    assert is_ours(ours)
    assert is_ours(type("Derived", (ours,), {"__module__": "mine"}))
    assert not is_ours(Theirs)
    assert not is_ours(None)
    assert not is_ours("vllm.v1.core.sched.scheduler.Scheduler")
