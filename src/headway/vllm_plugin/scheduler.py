"""How does vLLM's scheduler carry out our plan?

It is vLLM's own: `schedule` is called as it is, on what the plan leaves it. Its waiting queue shows
whom the plan admits (`queue.py`), and each sequence gets at most the tokens of the plan, none if it
is parked. The hook for that is `_reserve_prefill_lookahead`, which vLLM asks for each sequence how
much shorter a chunk has to be.
"""

from collections.abc import Sequence
from time import monotonic
from typing import Any

from headway.core.step import StepPlan
from headway.vllm_plugin.compat import IncompatibleError, check_engine, check_installed
from headway.vllm_plugin.items import whole_items
from headway.vllm_plugin.memory import KVMemory
from headway.vllm_plugin.planner import Planner
from headway.vllm_plugin.queue import PlannedQueue
from headway.vllm_plugin.settings import read_settings
from headway.vllm_plugin.size import Computed, EngineSize, StepBounds, most_tokens
from headway.vllm_plugin.step_clock import StepClock, StepUnderWay

try:
    from vllm.logger import init_logger
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.core.sched.request_queue import RequestQueue
    from vllm.v1.request import Request
except ImportError as error:
    check_installed()  # names all that is gone, and the way back
    raise IncompatibleError([str(error)]) from error

logger = init_logger("vllm.headway")


class QoSRequestQueue(PlannedQueue, RequestQueue):
    """A `RequestQueue` of vLLM's that shows what the plan admits."""


class QoSScheduler(AsyncScheduler):
    """vLLM's scheduler with tiers, tenants, floors and deadlines.

    Use: `--scheduler-cls headway.vllm_plugin.QoSScheduler --scheduling-policy priority`.
    """

    clock = staticmethod(monotonic)
    """Seconds; a test may set another."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_installed()
        super().__init__(*args, **kwargs)
        check_engine(self)
        settings = read_settings(self.vllm_config.additional_config)
        self._kv_slack = self.num_lookahead_tokens + self.num_spec_tokens
        speculative = self.vllm_config.speculative_config
        self._draft_slots = (
            0 if speculative is None else int(speculative.max_num_new_slots_for_drafting)
        )
        memory = self._memory()
        self._planner = Planner(
            settings,
            EngineSize(
                max_num_seqs=self._num_slots(),
                max_num_batched_tokens=self.max_num_scheduled_tokens,
                max_model_len=self.max_model_len,
                num_blocks=memory.num_blocks,
                block_size=memory.block_size,
                watermark_blocks=self.kv_cache_manager.watermark_blocks,
                enable_chunked_prefill=self.scheduler_config.enable_chunked_prefill,
                speculates=self.num_spec_tokens > 0,
                max_loras=None if self.lora_config is None else self.lora_config.max_loras,
            ),
        )
        self._step_clock = StepClock()
        self._caps: dict[str, int] = {}
        self._admitted: frozenset[str] = frozenset()
        self._clears_caches = False
        self._was_empty = False
        self._num_preempted = 0
        self._spare_tokens = 0
        self.waiting = QoSRequestQueue(
            self._planner,
            self._is_blocked,
            self.clock,
        )
        for tier in settings.tiers.all:
            logger.info("headway: tier %s, floor %g, %s", tier.name, tier.floor, tier.target)

    # -- requests -------------------------------------------------------------------------------

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if self._clears_caches:
            self._planner.lose_blocks(request.request_id)
        else:
            self._planner.preempt(request.request_id, self.clock())
        self._num_preempted += 1
        super()._preempt_request(request, *args, **kwargs)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """Clear the cache; who loses its blocks for that has given way to nobody."""
        self._clears_caches = True
        try:
            return bool(super().reset_prefix_cache(*args, **kwargs))
        finally:
            self._clears_caches = False

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._planner.forget(request.request_id)
        return super()._free_request(request, *args, **kwargs)

    # -- a step ---------------------------------------------------------------------------------

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Plan a step and let vLLM make it."""
        now = self.clock()
        plan = None
        admitted: list[str] = []
        # vLLM resumes sessions that are fed before whom the plan admits. Where both wait for each
        # other, and nothing is under way that could change that, vLLM goes on without a plan.
        is_idle = not self._step_clock.is_under_way
        stuck = self._was_empty and is_idle
        if self._pause_state == PauseState.UNPAUSED and not stuck:
            self.waiting.retry_blocked(self._handle_blocked_waiting_request)
            plan = self._plan(now, decodes_only=throttle_prefills and self._defers_prefills())
            admitted = self._prepare(plan, now)
            self._planner.counters.add("planning_seconds", self.clock() - now)
        self.waiting.offer(admitted)
        num_preempted = self._num_preempted
        try:
            output = super().schedule(throttle_prefills)
        finally:
            left = self.waiting.withdraw()
            self._caps.clear()
        is_empty = output.total_num_scheduled_tokens == 0
        self._was_empty = plan is not None and is_empty and is_idle
        refused = None
        # One that vLLM did not come to was not refused.
        room = output.total_num_scheduled_tokens < self.max_num_scheduled_tokens
        room = room and len(self.running) < self._num_slots() and self._has_input_left(output)
        room = room and all(map(self._is_blocked, self.kv_holding_waiting))
        if left is not None and room and self._num_preempted == num_preempted:
            refused = left.request_id
        self._book(plan, admitted, output, now, refused)
        return output

    def _defers_prefills(self) -> bool:
        """Whether vLLM, asked to hold prompts back in favour of other data-parallel ranks, does."""
        if self.prefill_capacity_bound:
            return False
        return any(not request.is_prefill_chunk for request in self.running)

    def _is_blocked(self, request: Request) -> bool:
        return bool(self._is_blocked_waiting_status(request.status))

    def _has_input_left(self, output: SchedulerOutput) -> bool:
        used = output.total_num_scheduled_tokens
        used += self._draft_slots * len(output.num_scheduled_tokens)
        return bool(used + self._draft_slots < self.scheduler_config.max_num_batched_tokens)

    def _plan(self, now: float, *, decodes_only: bool) -> StepPlan:
        bounds = StepBounds(
            begins_at=self._step_clock.next_begin(now),
            max_num_seqs=max(1, self._num_slots() - self.num_waiting_for_streaming_input),
            max_num_batched_tokens=most_tokens(
                self.max_num_scheduled_tokens,
                self.scheduler_config.max_num_batched_tokens,
                [len(request.spec_token_ids) for request in self.running],
                self._draft_slots * min(self._num_slots(), len(self.running) + len(self.waiting)),
                self._draft_slots,
            ),
            decodes_only=decodes_only,
            sessions=tuple(self.kv_holding_waiting) if self.lora_config is not None else (),
        )
        for request_id in self._planner.give_way(self.running, self._memory(), bounds):
            self._take_blocks(request_id, now)
        return self._planner.plan(self.running, self._memory(), now, bounds)

    def _num_slots(self) -> int:
        return int(min(self.max_num_running_reqs, self.max_num_active_reqs))

    def _memory(self) -> KVMemory:
        return KVMemory(
            self.kv_cache_manager,
            self.requests,
            slack=self._kv_slack,
            max_model_len=self.max_model_len,
        )

    def _prepare(self, plan: StepPlan, now: float) -> list[str]:
        """Preempt, and cap every sequence; return whom to admit, in order."""
        for request_id in plan.preempted:
            self._take_blocks(request_id, now)
        self._caps = dict.fromkeys((request.request_id for request in self.running), 0)
        for item in plan.items:
            drafts = len(self.requests[item.sequence_id].spec_token_ids)
            self._caps[item.sequence_id] = item.num_tokens + drafts
        self._spare_tokens = self.max_num_scheduled_tokens - sum(self._caps.values())
        admitted = [item.sequence_id for item in plan.items if item.is_admission]
        self._admitted = frozenset(admitted)
        return admitted

    def _take_blocks(self, request_id: str, now: float) -> None:
        request = self.requests[request_id]
        self.running.remove(request)
        self._preempt_request(request, now)

    def _planned(self, request: Request, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Return how many of the tokens that vLLM would compute the plan computes.

        To an admission of which one token is left vLLM adds slots for drafts, all of them or none.
        """
        is_last = request.num_tokens - num_computed_tokens == 1
        if is_last and request.request_id in self._admitted:
            return num_new_tokens
        return min(num_new_tokens, self._caps.get(request.request_id, num_new_tokens))

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        cap = self._planned(request, num_computed_tokens, num_new_tokens)
        num_tokens: int = super()._reserve_prefill_lookahead(request, num_computed_tokens, cap)
        return num_tokens

    def _try_schedule_encoder_inputs(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int, *args: Any, **kw: Any
    ) -> Any:
        """Let the encoder work for no more of a prompt than what the plan computes."""
        cap = planned = self._planned(request, num_computed_tokens, num_new_tokens)
        if cap > 0 and self.scheduler_config.disable_chunked_mm_input:
            longest = min(num_new_tokens, planned + max(0, self._spare_tokens))
            cap = whole_items(
                request.mm_features,
                num_computed_tokens,
                planned,
                longest,
                lookahead=self.num_prefill_lookahead,
            )
        result = super()._try_schedule_encoder_inputs(
            request, num_computed_tokens, cap, *args, **kw
        )
        if request.request_id in self._caps:
            self._caps[request.request_id] = result[1]
            self._spare_tokens -= max(0, result[1] - planned)
        return result

    def _book(
        self,
        plan: StepPlan | None,
        admitted: Sequence[str],
        output: SchedulerOutput,
        now: float,
        refused: str | None,
    ) -> None:
        offered, drafts = frozenset(admitted), output.scheduled_spec_decode_tokens
        computed = []
        for request_id, num_tokens in output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            start = request.num_computed_tokens - num_tokens
            num_drafts = len(drafts.get(request_id, ()))
            computed.append(Computed(request, num_tokens, start, num_drafts, request_id in offered))
        features = self._planner.carried_out(plan, computed, self.running, now, refused)
        if computed:
            predicted_s = self._planner.predictor.predict(features)
            self._step_clock.begin(StepUnderWay(output, features, now, predicted_s))

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Look ahead only when steps overlap, as vLLM itself does by its choice of class."""
        if self.scheduler_config.async_scheduling:
            super()._update_after_schedule(scheduler_output)
        else:
            super(AsyncScheduler, self)._update_after_schedule(scheduler_output)

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        result: tuple[list[int], bool]
        if self.scheduler_config.async_scheduling:
            result = super()._update_request_with_output(request, new_token_ids, is_stale)
        else:
            result = super(AsyncScheduler, self)._update_request_with_output(
                request, new_token_ids, is_stale
            )
        return result

    def update_from_output(
        self, scheduler_output: SchedulerOutput, *args: Any, **kwargs: Any
    ) -> Any:
        """Let vLLM book a step, and learn how long it took and who was given tokens."""
        now = self.clock()
        done = self._step_clock.end(scheduler_output, now)
        if done is not None:
            step, seconds = done
            self._planner.observe(step.features, seconds)
        outputs = super().update_from_output(scheduler_output, *args, **kwargs)
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.new_token_ids:
                    self._planner.note_tokens(output.request_id, len(output.new_token_ids), now)
        return outputs

    # -- watching -------------------------------------------------------------------------------

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        """Return vLLM's statistics, with ours in a mapping that only LoRA would use."""
        stats = super().make_stats(*args, **kwargs)
        if stats is not None and self.lora_config is None:
            stats.waiting_lora_adapters.update(self._planner.report(self.running))
        return stats

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off in our books. Linear; for tests."""
        self._planner.check_integrity()
        assert len(self._planner) <= len(self.waiting), "somebody stands in line unknown to vLLM"
        for request_id in self.requests:
            assert request_id in self._planner, f"{request_id} is not known"
