"""Is this a vLLM that the scheduler can work with?

The scheduler wraps vLLM's own and relies on members of it that vLLM does not promise to keep
(`members.py`). They are looked for before the first request: what is gone or changed is named, and
so is the way back.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from headway.errors import ConfigError
from headway.vllm_plugin.interface import Found, look_up
from headway.vllm_plugin.members import SCHEDULER_MEMBERS, STAT_LOGGER_MEMBERS, Member

Look = Callable[[Member], Found | None]

SUPPORTED = ((0, 31), (0, 33))
"""vLLM releases, from the first to below the second."""
WAY_BACK = (
    "start vLLM without --scheduler-cls (and without HEADWAY_VLLM=1): its own scheduler with "
    "--scheduling-policy priority understands the same priorities"
)


class IncompatibleError(ConfigError):
    """This vLLM, or the way it was started, is none that the scheduler can work with."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("scheduler_cls", f"{'; '.join(reasons)}. The way back: {WAY_BACK}")


def check_installed() -> None:
    """Raise IncompatibleError naming all that the installed vLLM lacks, ImportError without one."""
    vllm = importlib.import_module("vllm")
    check_vllm(str(getattr(vllm, "__version__", "of no known version")))


def check_vllm(version: str, look: Look = look_up) -> None:
    """Raise IncompatibleError naming all that is missing of vLLM `version`; `look` finds a member.

    A version that is no number (a build from source) is judged by its members alone.
    """
    reasons = _wrong_version(version) + missing((*SCHEDULER_MEMBERS, *STAT_LOGGER_MEMBERS), look)
    if reasons:
        raise IncompatibleError(reasons)


def check_engine(scheduler: Any) -> None:
    """Raise IncompatibleError naming what a vLLM engine does that is not supported yet.

    `scheduler` is vLLM's, as its own `__init__` leaves it.
    """
    config = scheduler.vllm_config
    reasons = [
        text
        for applies, text in (
            (scheduler.policy.value != "priority", "it needs --scheduling-policy priority"),
            (scheduler.connector is not None, "KV connectors are not supported"),
            (scheduler.ec_connector is not None, "encoder connectors are not supported"),
            (
                config.parallel_config.pipeline_parallel_size > 1,
                "pipeline parallelism is not supported; tensor and data parallelism are",
            ),
            (scheduler.is_encoder_decoder, "encoder-decoder models are not supported"),
            (scheduler.has_mamba_layers, "models with Mamba layers are not supported"),
            (
                kinds_of_groups(scheduler) != ["FullAttentionManager"],
                "layers of several kinds, or with a window, are supported only as one group of "
                "full attention, as with --disable-hybrid-kv-cache-manager",
            ),
            (
                config.model_config.runner_type == "pooling" or config.model_config.is_diffusion,
                "only models that generate text are supported",
            ),
        )
        if applies
    ]
    if reasons:
        raise IncompatibleError(reasons)


def kinds_of_groups(scheduler: Any) -> list[str]:
    """Return the kind of vLLM's manager of each group of layers."""
    groups = scheduler.kv_cache_manager.coordinator.single_type_managers
    return [type(group).__name__ for group in groups]


def _wrong_version(version: str) -> list[str]:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or version.startswith("0.0"):
        return []
    first, end = SUPPORTED
    if first <= (int(match[1]), int(match[2])) < end:
        return []
    return [
        f"headway's scheduler supports vLLM {first[0]}.{first[1]} to below {end[0]}.{end[1]}, "
        f"this is {version}"
    ]


def missing(members: Iterable[Member], look: Look = look_up) -> list[str]:
    """Return what vLLM lacks of these, in words."""
    reasons = []
    gone: list[str] = []
    for member in members:
        if any(member.full_name.startswith(f"{name}.") for name in gone):
            continue
        found = look(member)
        if found is None:
            gone.append(member.full_name)
            reasons.append(f"vLLM has no {member.full_name}")
        else:
            reasons += [f"{member.full_name} {text}" for text in changes(member, found)]
    return reasons


def changes(member: Member, found: Found) -> list[str]:
    """Return how a member differs from what is relied on, in words that follow its name."""
    taken = () if found.open_ended else member.parameters
    texts = [f"takes no {name}" for name in taken if name not in found.parameters]
    if member.overridden:
        others = [name for name in found.parameters if name not in member.parameters]
        texts += [f"takes {name}, which headway's does not" for name in others]
    texts += [f"has no {name}" for name in member.fields if name not in found.fields]
    if member.implemented:
        others = sorted(found.abstract.difference(member.implemented))
        texts += [f"asks for {name}, which headway's has not" for name in others]
    texts += [
        f"uses {name} {found.reads.get(name, 0)} times, not {least}"
        for name, least in member.calls
        if found.reads.get(name, 0) < least
    ]
    if not found.returns.startswith(member.returns):
        texts.append(f"returns {found.returns or 'what it does not say'}, not {member.returns} ...")
    return texts
