"""Is this a vLLM that the scheduler can work with?

The scheduler wraps vLLM's own and relies on members of it that vLLM does not promise to keep. Each
is listed here with the parameters that are used, and looked for before the first request: what is
gone is named, and so is the way back.
"""

import importlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway.errors import ConfigError

SUPPORTED = ((0, 31), (0, 33))
"""vLLM releases, from the first to below the second."""
WAY_BACK = (
    "start vLLM without --scheduler-cls (and without HEADWAY_VLLM=1): its own scheduler with "
    "--scheduling-policy priority understands the same priorities"
)


@dataclass(frozen=True, slots=True)
class Member:
    """Something of vLLM that is relied on."""

    module: str
    name: str
    """Within the module; a dot leads into a class."""
    parameters: tuple[str, ...] = ()
    """Names of a callable's parameters that are used or passed on, `self` aside."""
    fields: tuple[str, ...] = ()
    """Attributes that instances of a class are given by its `__init__`, or that it defines."""


_SCHED = "vllm.v1.core.sched"
MEMBERS = (
    Member(f"{_SCHED}.async_scheduler", "AsyncScheduler"),
    Member(
        f"{_SCHED}.async_scheduler", "AsyncScheduler._update_after_schedule", ("scheduler_output",)
    ),
    Member(
        f"{_SCHED}.async_scheduler",
        "AsyncScheduler._update_request_with_output",
        ("request", "new_token_ids", "is_stale"),
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler",
        ("vllm_config", "kv_cache_config", "structured_output_manager", "block_size", "log_stats"),
        (
            "waiting",
            "kv_holding_waiting",
            "deferred_waiting",
            "running",
            "requests",
            "max_num_running_reqs",
            "max_num_active_reqs",
            "max_num_scheduled_tokens",
            "max_model_len",
            "num_spec_tokens",
            "num_lookahead_tokens",
            "num_waiting_for_streaming_input",
            "kv_cache_manager",
            "has_mamba_layers",
            "is_encoder_decoder",
            "policy",
            "log_stats",
            "lora_config",
            "connector",
            "ec_connector",
            "vllm_config",
            "scheduler_config",
            "_pause_state",
        ),
    ),
    Member(f"{_SCHED}.scheduler", "Scheduler.schedule", ("throttle_prefills",)),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler.update_from_output",
        ("scheduler_output", "model_runner_output"),
    ),
    Member(f"{_SCHED}.scheduler", "Scheduler._preempt_request", ("request", "timestamp")),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler._reserve_prefill_lookahead",
        ("request", "num_computed_tokens", "num_new_tokens"),
    ),
    Member(f"{_SCHED}.scheduler", "Scheduler._handle_blocked_waiting_request", ("request",)),
    Member(f"{_SCHED}.scheduler", "Scheduler._is_blocked_waiting_status", ("status",)),
    Member(f"{_SCHED}.scheduler", "Scheduler._free_request", ("request",)),
    Member(f"{_SCHED}.scheduler", "Scheduler.make_stats"),
    *(
        Member(f"{_SCHED}.request_queue", f"RequestQueue.{name}", parameters)
        for name, parameters in (
            ("add_request", ("request",)),
            ("pop_request", ()),
            ("peek_request", ()),
            ("prepend_request", ("request",)),
            ("prepend_requests", ("requests",)),
            ("remove_request", ("request",)),
            ("remove_requests", ("requests",)),
        )
    ),
    Member(f"{_SCHED}.request_queue", "SchedulingPolicy.PRIORITY"),
    Member(f"{_SCHED}.interface", "PauseState.UNPAUSED"),
    Member(
        "vllm.v1.request",
        "Request",
        fields=(
            "request_id",
            "priority",
            "sampling_params",
            "max_tokens",
            "num_prompt_tokens",
            "num_tokens",
            "num_computed_tokens",
            "num_output_placeholders",
            "num_in_flight_tokens",
            "num_preemptions",
            "status",
        ),
    ),
    Member(
        "vllm.v1.core.kv_cache_manager",
        "KVCacheManager",
        fields=("coordinator", "block_pool", "watermark_blocks"),
    ),
    Member("vllm.v1.core.kv_cache_manager", "KVCacheManager.get_computed_blocks", ("request",)),
    Member(
        "vllm.v1.core.kv_cache_coordinator", "KVCacheCoordinator", fields=("single_type_managers",)
    ),
    Member(
        "vllm.v1.core.single_type_kv_cache_manager",
        "SingleTypeKVCacheManager",
        fields=("block_size", "req_to_blocks"),
    ),
    Member("vllm.v1.core.block_pool", "BlockPool", fields=("num_gpu_blocks",)),
    Member("vllm.v1.core.block_pool", "BlockPool.get_num_free_blocks"),
    Member(
        "vllm.v1.core.kv_cache_utils", "KVCacheBlock", fields=("block_id", "ref_cnt", "is_null")
    ),
    Member(
        f"{_SCHED}.output",
        "SchedulerOutput",
        fields=("num_scheduled_tokens", "scheduled_spec_decode_tokens", "preempted_req_ids"),
    ),
    Member("vllm.v1.engine", "EngineCoreOutput", fields=("request_id", "new_token_ids")),
    Member("vllm.v1.engine", "EngineCoreOutputs", fields=("outputs",)),
    Member("vllm.v1.metrics.stats", "SchedulerStats", fields=("waiting_lora_adapters",)),
)


class IncompatibleError(ConfigError):
    """This vLLM, or the way it was started, is none that the scheduler can work with."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("scheduler_cls", f"{'; '.join(reasons)}. The way back: {WAY_BACK}")


def check_vllm(version: str, load: Callable[[str], Any] = importlib.import_module) -> None:
    """Raise IncompatibleError naming all that is missing of vLLM `version`; `load` gives a module.

    A version that is no number (a build from source) is judged by its members alone.
    """
    reasons = _wrong_version(version)
    for member in MEMBERS:
        reasons += missing(member, load)
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
                config.model_config.runner_type == "pooling" or config.model_config.is_diffusion,
                "only models that generate text are supported",
            ),
        )
        if applies
    ]
    if reasons:
        raise IncompatibleError(reasons)


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


def missing(member: Member, load: Callable[[str], Any]) -> list[str]:
    """Return what vLLM lacks of a member, in words."""
    full_name = f"{member.module}.{member.name}"
    try:
        found = load(member.module)
        for part in member.name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return [f"vLLM has no {full_name}"]
    lacking = []
    if member.parameters:
        known = inspect.signature(found).parameters
        open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())
        lacking += [
            f"{full_name} takes no {name}"
            for name in member.parameters
            if name not in known and not open_ended
        ]
    known_fields = fields_of(found) if member.fields else frozenset()
    return lacking + [
        f"{full_name} has no {name}" for name in member.fields if name not in known_fields
    ]


def fields_of(cls: type) -> frozenset[str]:
    """Return the attributes of a class: those it defines, annotates, or sets on `self`."""
    names: set[str] = set()
    for base in cls.__mro__:
        names.update(vars(base))
        names.update(getattr(base, "__annotations__", {}))
        init = vars(base).get("__init__")
        code = getattr(init, "__code__", None)
        if code is not None:
            names.update(code.co_names)
    return frozenset(names)
