"""How does a test drive vLLM's scheduler without a model?

The scheduler is vLLM's own or ours on top of it, with vLLM's own KV cache manager. In place of the
model every sequence that is computed to its end draws how many tokens it has drawn.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    LoRAConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    SpeculativeConfig,
    VllmConfig,
)
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from headway.vllm_plugin import QoSScheduler

BLOCK_SIZE = 16
EOS = 0
CRITICAL, NORMAL, BULK = -1, 0, 1


def starts_of(output: Any) -> dict[str, int]:
    """Return, for each request of a step, how many of its tokens were computed before."""
    cached = output.scheduled_cached_reqs
    starts = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return starts


def speculation(model: ModelConfig, num_drafts: int) -> SpeculativeConfig | None:
    """Return how so many tokens are drafted from earlier ones; None: none are."""
    if num_drafts == 0:
        return None
    return SpeculativeConfig(
        method="ngram",
        num_speculative_tokens=num_drafts,
        prompt_lookup_max=3,
        prompt_lookup_min=1,
        target_model_config=model,
        target_parallel_config=ParallelConfig(),
    )


def picture(name: str, offset: int, length: int) -> MultiModalFeatureSpec:
    """Return an image like no other."""
    return MultiModalFeatureSpec(
        data=None,
        modality="image",
        identifier=name,
        mm_position=PlaceholderRange(offset=offset, length=length),
        mm_hash=name,
    )


@dataclass
class Engine:
    """One scheduler, and up to `depth` steps under way, as with asynchronous scheduling."""

    model: str
    cls: Any = QoSScheduler
    policy: Any = "priority"
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 64
    num_blocks: int = 200
    caching: bool = True
    chunking: bool = True
    depth: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    max_loras: int | None = None
    throttles: bool = False
    """Whether prompts are to be held back in favour of other data-parallel ranks."""
    encoder_cache: int | None = None
    """Embeddings of images that fit at once; None: no images."""
    whole_images: bool = False
    watermark: float = 0.0
    """Share of the blocks that admissions beside others leave available."""
    window: int | None = None
    """Tokens that the attention of all layers looks back; None: all."""
    max_num_active_seqs: int | None = None
    num_drafts: int = 0
    """Tokens that n-gram speculative decoding may draft; a test says which."""

    def __post_init__(self) -> None:
        model = ModelConfig(model=self.model, dtype="bfloat16", max_model_len=1024, seed=0)
        config = VllmConfig(
            model_config=model,
            speculative_config=speculation(model, self.num_drafts),
            scheduler_config=SchedulerConfig(
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_model_len=1024,
                enable_chunked_prefill=self.chunking,
                is_encoder_decoder=False,
                policy=self.policy,
                watermark=self.watermark,
                max_num_active_seqs=self.max_num_active_seqs,
            ),
            cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=self.caching),
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
            lora_config=None if self.max_loras is None else LoRAConfig(max_loras=self.max_loras),
            additional_config={"headway": self.settings},
        )
        config.scheduler_config.async_scheduling = self.depth > 1
        config.cache_config.block_size = BLOCK_SIZE
        config.cache_config.num_gpu_blocks = self.num_blocks
        shape = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 1}
        spec = (
            FullAttentionSpec(dtype=torch.float32, **shape)
            if self.window is None
            else SlidingWindowSpec(dtype=torch.float32, sliding_window=self.window, **shape)
        )
        self.config = config
        self.scheduler = self.cls(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=self.num_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK_SIZE,
            log_stats=True,
        )
        if self.encoder_cache is not None:
            self.scheduler.max_num_encoder_input_tokens = self.encoder_cache
            self.scheduler.encoder_cache_manager = EncoderCacheManager(self.encoder_cache)
            config.scheduler_config.disable_chunked_mm_input = self.whole_images
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        self._under_way: deque[Any] = deque()
        self._counter = 0
        self.outputs: dict[str, list[int]] = {}

    def add(
        self,
        name: str,
        priority: int,
        *,
        prompt: Sequence[int] | int = 16,
        max_tokens: int = 8,
        tenant: str = "",
        weight: float = 1.0,
        adapter: int = 0,
        image: tuple[int, int] | None = None,
    ) -> None:
        """Let a request arrive. A prompt that is a number is that many tokens like nobody's.

        `adapter` is the number of its LoRA adapter, `image` the place and the length of one.
        """
        self._counter += 1
        if isinstance(prompt, int):
            prompt = [1000 * self._counter + position for position in range(prompt)]
        extra = {"headway_tenant": tenant, "headway_weight": weight} if tenant else None
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, extra_args=extra)
        params.update_from_generation_config({}, EOS)
        self.outputs[name] = []
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=list(prompt),
                sampling_params=params,
                pooling_params=None,
                priority=priority,
                arrival_time=float(self._counter),
                block_hasher=self._hasher,
                lora_request=LoRARequest(f"a{adapter}", adapter, "nowhere") if adapter else None,
                mm_features=None if image is None else [picture(name, *image)],
            )
        )

    def add_session(self, name: str, adapter: int = 0) -> None:
        """Add a critical session, and run until it waits for its client's next input."""
        self.add(name, CRITICAL, prompt=20, max_tokens=4, adapter=adapter)
        session = self.scheduler.requests[name]
        session.resumable, session.streaming_queue = True, deque()
        while session.status != RequestStatus.WAITING_FOR_STREAMING_REQ:
            self.step()

    def feed(self, name: str, prompt: int) -> None:
        """Let a session that waits for its next input have one of so many tokens."""
        before = self.scheduler.requests[name]
        self.scheduler.add_request(
            Request(
                request_id=name,
                prompt_token_ids=list(range(prompt)),
                sampling_params=before.sampling_params,
                pooling_params=None,
                priority=before.priority,
                arrival_time=float(self._counter),
                block_hasher=self._hasher,
                lora_request=before.lora_request,
                resumable=True,
            )
        )

    def abort(self, name: str) -> None:
        """Let a request's client leave."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self, execute: Callable[[Any], None] = lambda _: None) -> dict[str, int]:
        """Ask for a step, and return one when `depth` are under way. Returns the step's tokens."""
        output = self.scheduler.schedule(self.throttles)
        execute(output)
        self._under_way.append(output)
        scheduled = dict(output.num_scheduled_tokens)
        if len(self._under_way) >= self.depth:
            self.return_step()
        return scheduled

    def return_step(self) -> None:
        """Give the scheduler what the oldest step under way has computed."""
        output = self._under_way.popleft()
        names = list(output.num_scheduled_tokens)
        drawing = self._drawing(output)
        result = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[
                    [1 + len(self.outputs[name])] if name in drawing else [] for name in names
                ],
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        for of_client in result.values():
            for one in of_client.outputs:
                self.outputs[one.request_id] += one.new_token_ids

    def _drawing(self, output: Any) -> set[str]:
        """Return who is computed to its end by a step, and so draws a token."""
        starts = starts_of(output)
        return {
            name
            for name, num_tokens in output.num_scheduled_tokens.items()
            if (request := self.scheduler.requests.get(name)) is not None
            and starts[name] + num_tokens >= request.num_tokens
        }

    def run(self, most: int = 2000) -> int:
        """Step until nobody is left; return how many steps that took."""
        for taken in range(most):
            if not self.scheduler.has_requests():
                return taken
            self.step()
            self.check()
        raise AssertionError(f"not idle after {most} steps: {list(self.scheduler.requests)}")

    @property
    def running(self) -> list[str]:
        """Who holds blocks."""
        return [request.request_id for request in self.scheduler.running]

    def check(self) -> None:
        """Check vLLM's books and ours against each other."""
        scheduler = self.scheduler
        assert len(scheduler.running) <= scheduler.max_num_running_reqs
        free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        assert 0 <= free < self.num_blocks
        if not scheduler.requests:
            assert free == self.num_blocks - 1, "blocks are held by nobody"
        num_running, num_waiting = scheduler.get_request_counts()
        assert num_running + num_waiting == len(scheduler.requests)
        if isinstance(scheduler, QoSScheduler):
            scheduler.check_integrity()
