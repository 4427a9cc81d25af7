"""What stands in for vLLM where there is none?

The double keeps slots, blocks and requests as vLLM's scheduler does, asks the planner for each step
and makes it, with up to `depth` steps under way. It refuses what vLLM would refuse: more requests
than slots, more blocks than there are.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from headway.core.protection import target
from headway.core.step import Match, Resident, StepPlan
from headway.vllm_plugin.planner import Planner
from headway.vllm_plugin.queue import PlannedQueue
from headway.vllm_plugin.settings import Settings
from headway.vllm_plugin.size import Computed, EngineSize, StepBounds

BLOCK_SIZE = 4
CRITICAL, NORMAL, BULK = -1, 0, 1
READY, BLOCKED = "ready", "blocked"


@dataclass
class Params:
    """vLLM's sampling parameters."""

    extra_args: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Adapter:
    """vLLM's `LoRARequest`."""

    lora_int_id: int


@dataclass(eq=False)
class Request:
    """vLLM's request, as far as schedulers use it."""

    request_id: str
    priority: int
    num_prompt_tokens: int
    max_tokens: int
    sampling_params: Params | None = None
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    num_output_placeholders: int = 0
    num_in_flight_tokens: int = 0
    lora_request: Adapter | None = None
    mm_features: tuple[str, ...] = ()
    num_blocks: int = 0
    status: str = READY

    @property
    def num_tokens(self) -> int:
        """Known tokens."""
        return self.num_prompt_tokens + self.num_output_tokens


@dataclass
class Blocks:
    """The `Memory` of requests that share nothing."""

    requests: Mapping[str, Request]
    num_blocks: int
    block_size: int = BLOCK_SIZE

    @property
    def num_available(self) -> int:
        """Blocks that nobody holds."""
        held: int = sum(map(attrgetter("num_blocks"), self.requests.values()))
        return self.num_blocks - held

    def lacking(self, residents: Collection[Resident]) -> dict[str, int]:
        """See `Memory`."""
        growths = (
            (r.sequence_id, self.blocks_to_grow(r.sequence_id, target(r))) for r in residents
        )
        return {sequence_id: growth for sequence_id, growth in growths if growth > 0}

    def blocks_to_grow(self, sequence_id: str, num_tokens: int) -> int:
        """Return how many blocks a request must get to hold so many tokens."""
        return max(0, -(-num_tokens // BLOCK_SIZE) - self.requests[sequence_id].num_blocks)

    def releasable(self, sequence_ids: Collection[str], pinned: Collection[int]) -> int:
        """See `Memory`."""
        return sum(self.requests[i].num_blocks for i in sequence_ids)

    def match(self, sequence_id: str) -> Match:
        """See `Memory`."""
        return Match()


@dataclass
class FakeVllm:
    """An engine. A step takes `base_s`, and `token_s` for each token."""

    max_num_seqs: int = 4
    max_num_batched_tokens: int = 32
    num_blocks: int = 100
    depth: int = 1
    base_s: float = 0.02
    token_s: float = 0.01
    checks: bool = True
    """Whether each step ends with a check of the planner's books, which is linear."""
    settings: Settings = field(default_factory=Settings)
    max_loras: int | None = None
    refuses: Callable[[Request, "FakeVllm"], bool] = lambda request, engine: False
    """Whether a request is not admitted for a reason that the planner does not know."""
    stalls: Callable[[Request, "FakeVllm"], bool] = lambda request, engine: False
    """Whether nothing of a running request is computed, for such a reason."""

    def __post_init__(self) -> None:
        self.now = 0.0
        self.requests: dict[str, Request] = {}
        self.running: list[Request] = []
        self.finished: list[str] = []
        self.preempted: list[str] = []
        self._steps: deque[list[tuple[Request, int, bool]]] = deque()
        size = EngineSize(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=256,
            num_blocks=self.num_blocks,
            block_size=BLOCK_SIZE,
            max_loras=self.max_loras,
        )
        self.planner = Planner(self.settings, size)
        self.waiting = PlannedQueue(self.planner, lambda r: r.status == BLOCKED, lambda: self.now)
        self.memory = Blocks(self.requests, self.num_blocks)

    def add(
        self,
        name: str,
        priority: int,
        prompt: int = 8,
        max_tokens: int = 4,
        status: str = READY,
        adapter: int = 0,
        **extra: Any,
    ) -> Request:
        """Let a request arrive; `extra` become its extra arguments."""
        params = Params({f"headway_{key}": value for key, value in extra.items()})
        request = Request(name, priority, prompt, max_tokens, params, status=status)
        request.lora_request = Adapter(adapter) if adapter else None
        self.requests[name] = request
        self.waiting.add_request(request)
        return request

    def abort(self, name: str) -> None:
        """Let a request's client leave."""
        request = self.requests.pop(name)
        if request in self.running:
            self.running.remove(request)
        self.waiting.remove_requests([request])
        self.planner.forget(name)

    def plan(self) -> StepPlan:
        """Return what the next step would do."""
        return self.planner.plan(self.running, self.memory, self.now, self._bounds())

    def _bounds(self) -> StepBounds:
        return StepBounds(
            begins_at=self.now,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )

    def step(self) -> dict[str, int]:
        """Make a step, and return one when `depth` are under way. Returns the tokens by request."""
        self.waiting.retry_blocked(lambda request: request.status == READY)
        for name in self.planner.give_way(self.running, self.memory, self._bounds()):
            self._preempt(self.requests[name])
        plan = self.plan()
        for name in plan.preempted:
            self._preempt(self.requests[name])
        caps = {item.sequence_id: item.num_tokens for item in plan.items}
        admitted = [item.sequence_id for item in plan.items if item.is_admission]
        self.waiting.offer(admitted)
        while self.waiting:
            if self.refuses(self.requests[self.waiting.peek_request().request_id], self):
                break
            request = self.requests[self.waiting.pop_request().request_id]
            self.running.append(request)
        left = self.waiting.withdraw()
        refused = None if left is None else left.request_id
        assert len(self.running) <= self.max_num_seqs, "more requests than slots"
        adapters = {request.lora_request for request in self.running} - {None}
        assert len(adapters) <= (self.max_loras or 0), "more adapters than vLLM has places for"
        self._steps.append(self._compute(plan, caps, frozenset(admitted), refused))
        scheduled = {request.request_id: n for request, n, _ in self._steps[-1]}
        if len(self._steps) >= self.depth:
            self._return_step()
        if self.checks:
            self.planner.check_integrity()
        return scheduled

    def _preempt(self, request: Request) -> None:
        assert request.num_in_flight_tokens == 0, "a step under way writes the victim"
        self.running.remove(request)
        self.planner.preempt(request.request_id, self.now)
        request.num_blocks = request.num_computed_tokens = 0
        self.preempted.append(request.request_id)
        self.waiting.prepend_request(request)

    def _compute(
        self,
        plan: StepPlan,
        caps: Mapping[str, int],
        admitted: Collection[str],
        refused: str | None,
    ) -> list[tuple[Request, int, bool]]:
        computed, made = [], []
        for request in self.running:
            left = request.num_tokens + request.num_output_placeholders
            num_tokens = min(left - request.num_computed_tokens, caps.get(request.request_id, 0))
            if num_tokens <= 0 or self.stalls(request, self):
                continue
            assert request.num_output_tokens + request.num_output_placeholders < request.max_tokens
            start = request.num_computed_tokens
            blocks = self.memory.blocks_to_grow(request.request_id, start + num_tokens)
            assert blocks <= self.memory.num_available, "more blocks than there are"
            request.num_blocks += blocks
            request.num_computed_tokens += num_tokens
            request.num_in_flight_tokens += num_tokens
            draws = request.num_computed_tokens == left
            request.num_output_placeholders += draws
            is_admission = request.request_id in admitted
            computed.append(Computed(request, num_tokens, start, 0, is_admission))
            made.append((request, num_tokens, draws))
        assert sum(n for _, n, _ in made) <= self.max_num_batched_tokens
        features = self.planner.carried_out(plan, computed, self.running, self.now, refused)
        if made:
            step_s = self.base_s + self.token_s * features.num_tokens
            self.now += step_s
            self.planner.observe(features, step_s)
        return made

    def _return_step(self) -> None:
        for request, num_tokens, draws in self._steps.popleft():
            request.num_in_flight_tokens -= num_tokens
            if not draws or self.requests.get(request.request_id) is not request:
                continue
            request.num_output_placeholders -= 1
            request.num_output_tokens += 1
            self.planner.note_tokens(request.request_id, 1, self.now)
            if request.num_output_tokens >= request.max_tokens:
                self.finished.append(request.request_id)
                self.abort(request.request_id)

    def run(self, most: int = 500) -> int:
        """Step until nobody is left; return how many steps that took."""
        for taken in range(most):
            if not self.requests:
                return taken
            self.step()
        raise AssertionError(f"not idle after {most} steps: {list(self.requests)}")
