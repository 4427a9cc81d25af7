"""Do the simulator's `fcfs` and `vllm-priority` decide as vLLM does?

Feeds the same random requests to vLLM's own scheduler and to ours, without a model, and compares
the tokens of every request in every step. Needs vLLM 0.32, and a folder with a model's config.json:

    PYTHONPATH=src VENV_WITH_VLLM/bin/python bench/baselines_beside_vllm.py MODEL_FOLDER
"""

import argparse
import os
import sys
from random import Random
from typing import Any

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from headway.sim.baselines.fcfs import new_fcfs
from headway.sim.baselines.vllm_priority import new_vllm_priority
from headway.sim.scheduler import EngineShape, PolicySetup, SimRequest

BLOCK_SIZE = 16
MAX_MODEL_LEN = 2048
OURS = {"fcfs": new_fcfs, "priority": new_vllm_priority}
NUM_STEPS = 150
NUM_REQUESTS = 60


def theirs(model: str, policy: str, shape: EngineShape) -> Scheduler:
    """Return vLLM's scheduler for an engine of this shape."""
    cache = CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=False)
    # One block is vLLM's null block.
    cache.num_gpu_blocks = shape.num_blocks + 1
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="float32", max_model_len=MAX_MODEL_LEN),
        scheduler_config=SchedulerConfig(
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            max_model_len=MAX_MODEL_LEN,
            enable_chunked_prefill=True,
            policy=policy,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )
    spec = FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    groups = [KVCacheGroupSpec(["layer"], spec)]
    return Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(shape.num_blocks + 1, [], groups),
        block_size=BLOCK_SIZE,
        log_stats=False,
        structured_output_manager=StructuredOutputManager(config),
    )


class Both:
    """The two schedulers, and the tokens that each request is still to be given."""

    def __init__(self, model: str, policy: str, rng: Random) -> None:
        shape = EngineShape(
            max_num_seqs=rng.choice([2, 4, 8]),
            max_num_batched_tokens=rng.choice([32, 64, 128, 256]),
            num_blocks=rng.choice([17, 20, 30, 60]),
            block_size=BLOCK_SIZE,
            enable_prefix_caching=False,
        )
        self.theirs = theirs(model, policy, shape)
        self.ours = OURS[policy](PolicySetup(shape=shape))
        self.missing: dict[str, int] = {}
        self.num_empty = 0
        self._rng = rng
        self._num_added = 0
        self._room = shape.num_blocks * BLOCK_SIZE

    def arrive(self) -> None:
        """A request that fits the engine comes to both."""
        rng = self._rng
        prompt, output, rank = rng.randint(1, 200), rng.randint(1, 60), rng.randint(0, 2)
        if self._num_added == NUM_REQUESTS or prompt + output > self._room:
            return
        self._num_added += 1
        name = f"r{self._num_added}"
        request = Request(
            request_id=name,
            prompt_token_ids=list(range(prompt)),
            sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
            pooling_params=None,
            arrival_time=float(self._num_added),
            priority=rank,
        )
        self.theirs.add_request(request)
        request = SimRequest(
            request_id=name,
            rank=rank,
            arrival=float(self._num_added),
            num_prompt_tokens=prompt,
            num_output_tokens=output,
            max_tokens=output,
        )
        self.ours.add(request, 0.0)
        self.missing[name] = output

    def abort(self) -> None:
        """Somebody leaves both."""
        name = self._rng.choice(sorted(self.missing))
        del self.missing[name]
        self.theirs.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        self.ours.abort(name)

    def step(self) -> None:
        """Both plan a step and get its tokens. An empty step of vLLM is passed over."""
        output = self.theirs.schedule()
        while self.missing and not output.num_scheduled_tokens:
            self.num_empty += 1
            self.theirs.update_from_output(output, _result([], []))
            output = self.theirs.schedule()
        found = dict(output.num_scheduled_tokens)
        step = self.ours.plan(0.0)
        planned: Any = {} if step is None else step.token
        ours = {sequence.request_id: tokens for sequence, tokens in planned.items()}
        assert found == ours, f"vLLM {found}, ours {ours}"
        requests = [self.theirs.requests[name] for name in found]
        drawn = [[7] if r.num_computed_tokens == r.num_tokens else [] for r in requests]
        self.theirs.update_from_output(output, _result(list(found), drawn))
        if step is not None:
            for emission in self.ours.done(step, 0.0, 1.0):
                self.missing[emission.request_id] -= 1
                if emission.finished:
                    assert self.missing.pop(emission.request_id) == 0
        assert set(self.theirs.requests) == set(self.missing), "different requests are left"


def _result(names: list[str], drawn: list[list[int]]) -> ModelRunnerOutput:
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=drawn,
        logprobs=None,
        prompt_logprobs_dict={},
        pooler_output=[],
    )


def main() -> None:
    """Compare, and print how much was compared; an AssertionError shows the first difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a folder with config.json")
    parser.add_argument("--runs", type=int, default=150)
    arguments = parser.parse_args()
    for policy in OURS:
        num_steps = num_preemptions = num_empty = 0
        for seed in range(arguments.runs):
            rng = Random(seed)
            both = Both(arguments.model, policy, rng)
            for _ in range(NUM_STEPS):
                for _ in range(rng.choice([0, 0, 1, 2])):
                    both.arrive()
                if both.missing and rng.random() < 0.05:
                    both.abort()
                both.step()
            num_steps += NUM_STEPS
            num_preemptions += both.ours.stats().num_preemptions
            num_empty += both.num_empty
        sys.stdout.write(
            f"{policy}: {num_steps} steps equal, {num_preemptions} preemptions among them; "
            f"{num_empty} empty steps of vLLM passed over\n"
        )


if __name__ == "__main__":
    main()
