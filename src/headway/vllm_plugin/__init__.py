"""Quality of service inside vLLM: a scheduler class, its metrics, and their registration.

`vllm serve MODEL --scheduler-cls headway.vllm_plugin.QoSScheduler --scheduling-policy priority`.
Needs nothing beside vLLM but the core of headway; without vLLM the planning parts still import.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Import vLLM only when the scheduler is asked for."""
    if name == "QoSScheduler":
        from headway.vllm_plugin.scheduler import QoSScheduler

        return QoSScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
