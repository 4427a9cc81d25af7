"""Does vLLM stay as it is unless our scheduler is asked for?"""

from typing import Any

from headway.vllm_plugin.register import SCHEDULER, is_ours, use_scheduler


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


def test_a_scheduler_that_was_named_stays() -> None:
    cls = engine_args()
    use_scheduler(cls)
    assert cls("their.Scheduler").create_engine_config() == ("", "their.Scheduler", "fcfs")


def test_ours_is_recognised_by_name_and_class() -> None:
    class Theirs: ...

    ours = type("QoSScheduler", (), {"__module__": "headway.vllm_plugin.scheduler"})
    assert is_ours(SCHEDULER)
    assert is_ours(ours)
    assert is_ours(type("Derived", (ours,), {"__module__": "mine"}))
    assert not is_ours(Theirs)
    assert not is_ours(None)
    assert not is_ours("vllm.v1.core.sched.scheduler.Scheduler")
