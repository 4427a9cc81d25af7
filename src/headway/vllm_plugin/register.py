"""Does vLLM use our scheduler without being told on its command line?

Only when the environment says `HEADWAY_VLLM=1`; then a `vllm serve` without `--scheduler-cls` is
started as if with `--scheduler-cls headway.vllm_plugin.QoSScheduler --scheduling-policy priority`.
vLLM calls `register` in every process it starts, whether asked for or not.
"""

import logging
import os
from functools import wraps
from typing import Any

from headway.vllm_plugin.compat import IncompatibleError, missing
from headway.vllm_plugin.members import REGISTER_MEMBERS

VARIABLE = "HEADWAY_VLLM"
SCHEDULER = "headway.vllm_plugin.QoSScheduler"
POLICY = "priority"
_MARK = "_headway_is_default"

logger = logging.getLogger("vllm.headway")


def register() -> None:
    """Entry point of `vllm.general_plugins`. Does nothing unless asked; may be called again."""
    if os.environ.get(VARIABLE, "").lower() in ("1", "true", "yes", "on"):
        lacking = missing(REGISTER_MEMBERS)
        if lacking:
            raise IncompatibleError(lacking)
        from vllm.engine.arg_utils import EngineArgs

        use_scheduler(EngineArgs)


def use_scheduler(engine_args: Any) -> None:
    """Let engine arguments of that class that name no scheduler mean ours.

    Other plugins may wrap the same method, before or after: the mark is of ours alone.
    """
    original = engine_args.create_engine_config
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        _choose(self)
        return original(self, *args, **kwargs)

    setattr(create_engine_config, _MARK, True)
    engine_args.create_engine_config = create_engine_config


def _choose(args: Any) -> None:
    """Name our scheduler where none is named, and say so: no command line shows it.

    Its policy takes the place of any other; vLLM does not tell a default from what was asked for.
    """
    if args.scheduler_cls is None:
        logger.info(
            "%s: --scheduler-cls %s --scheduling-policy %s, in place of vLLM's scheduler and "
            "policy %s",
            VARIABLE,
            SCHEDULER,
            POLICY,
            args.scheduling_policy,
        )
        args.scheduler_cls, args.scheduling_policy = SCHEDULER, POLICY
    elif not is_ours(args.scheduler_cls):
        logger.warning("%s changes nothing: --scheduler-cls names %s", VARIABLE, args.scheduler_cls)


def is_ours(scheduler_cls: object) -> bool:
    """Return whether a configured scheduler class, or its name, is ours."""
    if isinstance(scheduler_cls, str):
        return scheduler_cls == SCHEDULER or scheduler_cls.startswith("headway.vllm_plugin.")
    bases = getattr(scheduler_cls, "__mro__", ())
    return any(base.__module__.startswith("headway.vllm_plugin.") for base in bases)
