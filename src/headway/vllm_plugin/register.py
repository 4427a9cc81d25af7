"""Does vLLM use our scheduler without being told on its command line?

Only when the environment says `HEADWAY_VLLM=1`; then a `vllm serve` without `--scheduler-cls` is
started as if with `--scheduler-cls headway.vllm_plugin.QoSScheduler --scheduling-policy priority`.
vLLM calls `register` in every process it starts, whether asked for or not.
"""

import os
from functools import wraps
from typing import Any

VARIABLE = "HEADWAY_VLLM"
SCHEDULER = "headway.vllm_plugin.QoSScheduler"


def register() -> None:
    """Entry point of `vllm.general_plugins`. Does nothing unless asked; may be called again."""
    if os.environ.get(VARIABLE, "").lower() in ("1", "true", "yes", "on"):
        from vllm.engine.arg_utils import EngineArgs

        use_scheduler(EngineArgs)


def use_scheduler(engine_args: type) -> None:
    """Let engine arguments that name no scheduler mean ours."""
    original = vars(engine_args)["create_engine_config"]
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.scheduler_cls is None:
            self.scheduler_cls, self.scheduling_policy = SCHEDULER, "priority"
        return original(self, *args, **kwargs)

    setattr(engine_args, "create_engine_config", create_engine_config)  # noqa: B010 - of any class


def is_ours(scheduler_cls: object) -> bool:
    """Return whether a configured scheduler class, or its name, is ours."""
    if isinstance(scheduler_cls, str):
        return scheduler_cls == SCHEDULER or scheduler_cls.startswith("headway.vllm_plugin.")
    bases = getattr(scheduler_cls, "__mro__", ())
    return any(base.__module__.startswith("headway.vllm_plugin.") for base in bases)
