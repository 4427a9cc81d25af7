"""Which members of vLLM does the plugin rely on?

vLLM promises to keep none of them, so each is listed with what is used of it. `compat.py` looks for
them before the first request; `tests_vllm/record.py` records them of each release.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """Something of vLLM that is relied on."""

    module: str
    name: str
    """Within the module; a dot leads into a class."""
    parameters: tuple[str, ...] = ()
    """Names of a callable's parameters that are used or passed on, `self` aside."""
    overridden: bool = False
    """A method of ours stands in for it, so it may take no other parameters."""
    fields: tuple[str, ...] = ()
    """Attributes of a class's instances: set in its `__init__`, or defined by it."""
    implemented: tuple[str, ...] = ()
    """Methods that ours has of an abstract class: no other may be abstract."""
    calls: tuple[tuple[str, int], ...] = ()
    """Attributes that its body reads at least so often: overriding those is of use only if so."""
    returns: str = ""
    """What its return annotation begins with, modules left out."""

    @property
    def full_name(self) -> str:
        """Its name with the module's."""
        return f"{self.module}.{self.name}"


_SCHED = "vllm.v1.core.sched"
_OVERRIDDEN = (
    "_preempt_request",
    "_free_request",
    "_reserve_prefill_lookahead",
    "_update_after_schedule",
    "_update_request_with_output",
    "schedule",
    "reset_prefix_cache",
    "_try_schedule_encoder_inputs",
    "update_from_output",
    "make_stats",
)
_UPDATE_REQUEST = ("request", "new_token_ids", "is_stale")
_QUEUE = (
    ("add_request", ("request",)),
    ("pop_request", ()),
    ("peek_request", ()),
    ("prepend_request", ("request",)),
    ("prepend_requests", ("requests",)),
    ("remove_request", ("request",)),
    ("remove_requests", ("requests",)),
)

SCHEDULER_MEMBERS = (
    # Being derived from vLLM's scheduler is what gives it these.
    Member(f"{_SCHED}.async_scheduler", "AsyncScheduler", fields=(*_OVERRIDDEN, "running")),
    Member(
        f"{_SCHED}.async_scheduler",
        "AsyncScheduler._update_after_schedule",
        ("scheduler_output",),
        overridden=True,
    ),
    Member(
        f"{_SCHED}.async_scheduler",
        "AsyncScheduler._update_request_with_output",
        _UPDATE_REQUEST,
        overridden=True,
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler",
        fields=(
            "waiting",
            "running",
            "requests",
            "max_num_running_reqs",
            "max_num_active_reqs",
            "max_num_scheduled_tokens",
            "max_model_len",
            "num_spec_tokens",
            "num_lookahead_tokens",
            "num_prefill_lookahead",
            "num_waiting_for_streaming_input",
            "kv_cache_manager",
            "has_mamba_layers",
            "is_encoder_decoder",
            "policy",
            "lora_config",
            "connector",
            "ec_connector",
            "vllm_config",
            "scheduler_config",
            "prefill_capacity_bound",
            "kv_holding_waiting",
            "_pause_state",
        ),
    ),
    # The cap of each sequence rests on the first: one call is for those that run, one for those
    # that are admitted.
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler.schedule",
        ("throttle_prefills",),
        overridden=True,
        calls=(
            ("_reserve_prefill_lookahead", 2),
            ("_try_schedule_encoder_inputs", 2),
            ("_preempt_request", 1),
            ("_update_after_schedule", 1),
            ("waiting", 1),
            ("peek_request", 1),
            ("pop_request", 1),
        ),
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler.update_from_output",
        ("scheduler_output",),
        calls=(("_update_request_with_output", 1), ("_free_request", 1), ("make_stats", 1)),
    ),
    Member(f"{_SCHED}.scheduler", "Scheduler.finish_requests", calls=(("_free_request", 1),)),
    Member(f"{_SCHED}.scheduler", "Scheduler.reset_prefix_cache", calls=(("_preempt_request", 1),)),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler._preempt_request",
        ("request", "timestamp"),
        calls=(("prepend_request", 1),),
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler._reserve_prefill_lookahead",
        ("request", "num_computed_tokens", "num_new_tokens"),
        overridden=True,
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler._update_after_schedule",
        ("scheduler_output",),
        overridden=True,
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler._update_request_with_output",
        _UPDATE_REQUEST,
        overridden=True,
    ),
    Member(
        f"{_SCHED}.scheduler",
        "Scheduler._try_schedule_encoder_inputs",
        ("request", "num_computed_tokens", "num_new_tokens"),
        returns="tuple[list[int], int",
    ),
    Member(f"{_SCHED}.scheduler", "Scheduler._handle_blocked_waiting_request", ("request",)),
    Member(f"{_SCHED}.scheduler", "Scheduler._is_blocked_waiting_status", ("status",)),
    Member(f"{_SCHED}.scheduler", "Scheduler._free_request", ("request",)),
    Member(f"{_SCHED}.scheduler", "Scheduler.make_stats"),
    Member(
        f"{_SCHED}.request_queue",
        "RequestQueue",
        implemented=(*(name for name, _ in _QUEUE), "__bool__", "__iter__", "__len__"),
    ),
    *(
        Member(f"{_SCHED}.request_queue", f"RequestQueue.{name}", parameters, overridden=True)
        for name, parameters in _QUEUE
    ),
    Member(f"{_SCHED}.request_queue", "SchedulingPolicy.PRIORITY"),
    Member(f"{_SCHED}.interface", "PauseState.UNPAUSED"),
    Member(
        f"{_SCHED}.output",
        "SchedulerOutput",
        fields=(
            "num_scheduled_tokens",
            "total_num_scheduled_tokens",
            "scheduled_spec_decode_tokens",
        ),
    ),
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
            "spec_token_ids",
            "lora_request",
            "mm_features",
            "is_prefill_chunk",
            "status",
        ),
    ),
    Member("vllm.sampling_params", "SamplingParams", fields=("extra_args",)),
    Member(
        "vllm.v1.core.kv_cache_manager",
        "KVCacheManager",
        fields=("coordinator", "block_pool", "watermark_blocks"),
    ),
    Member(
        "vllm.v1.core.kv_cache_manager",
        "KVCacheManager.get_computed_blocks",
        ("request",),
        returns="tuple[KVCacheBlocks, int",
    ),
    Member("vllm.v1.core.kv_cache_manager", "KVCacheBlocks", fields=("blocks",)),
    Member(
        "vllm.v1.core.kv_cache_coordinator", "KVCacheCoordinator", fields=("single_type_managers",)
    ),
    Member(
        "vllm.v1.core.single_type_kv_cache_manager",
        "SingleTypeKVCacheManager",
        fields=("block_size", "req_to_blocks"),
    ),
    Member("vllm.v1.core.single_type_kv_cache_manager", "FullAttentionManager"),
    Member("vllm.v1.core.block_pool", "BlockPool", fields=("num_gpu_blocks",)),
    Member("vllm.v1.core.block_pool", "BlockPool.get_num_free_blocks"),
    Member("vllm.v1.core.kv_cache_utils", "KVCacheBlock", fields=("block_id", "ref_cnt")),
    Member("vllm.v1.engine", "EngineCoreOutput", fields=("request_id", "new_token_ids")),
    Member("vllm.v1.engine", "EngineCoreOutputs", fields=("outputs",)),
    Member("vllm.v1.metrics.stats", "SchedulerStats", fields=("waiting_lora_adapters",)),
    Member(
        "vllm.config",
        "VllmConfig",
        fields=(
            "scheduler_config",
            "model_config",
            "parallel_config",
            "speculative_config",
            "additional_config",
        ),
    ),
    Member("vllm.config", "SpeculativeConfig", fields=("max_num_new_slots_for_drafting",)),
    Member(
        "vllm.config",
        "SchedulerConfig",
        fields=(
            "enable_chunked_prefill",
            "async_scheduling",
            "disable_chunked_mm_input",
            "max_num_seqs",
            "max_num_active_seqs",
            "max_num_batched_tokens",
            "scheduler_cls",
        ),
    ),
    Member(
        "vllm.config", "ModelConfig", fields=("runner_type", "is_diffusion", "served_model_name")
    ),
    Member("vllm.config", "LoRAConfig", fields=("max_loras",)),
    Member("vllm.lora.request", "LoRARequest", fields=("lora_int_id",)),
    Member("vllm.multimodal.inputs", "MultiModalFeatureSpec", fields=("mm_position",)),
    Member("vllm.multimodal.inputs", "PlaceholderRange", fields=("offset", "length")),
    Member("vllm.config", "ParallelConfig", fields=("pipeline_parallel_size",)),
    Member("vllm.logger", "init_logger", ("name",)),
)
"""Those of the scheduler."""
STAT_LOGGER_MEMBERS = (
    Member("vllm.v1.metrics.loggers", "load_stat_logger_plugin_factories"),
    Member(
        "vllm.v1.metrics.loggers",
        "AggregateStatLoggerBase",
        ("vllm_config", "engine_indexes"),
        overridden=True,
        implemented=("__init__", "record", "log_engine_initialized"),
    ),
    Member(
        "vllm.v1.metrics.loggers",
        "AggregateStatLoggerBase.record",
        ("scheduler_stats", "iteration_stats", "mm_cache_stats", "engine_idx"),
        overridden=True,
    ),
)
"""Those of the statistics logger."""
REGISTER_MEMBERS = (
    Member(
        "vllm.engine.arg_utils",
        "EngineArgs",
        ("scheduler_cls", "scheduling_policy"),
        fields=("create_engine_config", "scheduler_cls", "scheduling_policy"),
    ),
)
"""Those of HEADWAY_VLLM=1 alone."""
MEMBERS = (*SCHEDULER_MEMBERS, *STAT_LOGGER_MEMBERS, *REGISTER_MEMBERS)
