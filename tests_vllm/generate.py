"""Which tokens does a real vLLM generate for a fixed run of requests?

`python -m tests_vllm.generate '{"ours": true}'` prints them as JSON, with the numbers of
preemptions, and of tokens that were drafted and accepted. Bulk requests fill the engine, then
critical ones arrive.
"""

import os
from typing import Any

from vllm import EngineArgs, LLMEngine, SamplingParams

from tests_vllm.child import print_result

BULK, CRITICAL = 1, -1
NUM_BULK, NUM_CRITICAL = 6, 3
SEED_TEXT = "The quick brown fox jumps over the lazy dog and then "


def engine_args(model: str, how: dict[str, Any]) -> dict[str, Any]:
    """Return vLLM's arguments: blocks for about four of the requests, so that some give way."""
    args: dict[str, Any] = {
        "model": model,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 256,
        "block_size": 32,
        "num_gpu_blocks_override": 17,
        "enable_prefix_caching": how.get("caching", True),
        "scheduling_policy": "priority",
        "disable_log_stats": False,
    }
    if how.get("ours"):
        args["scheduler_cls"] = "headway.vllm_plugin.QoSScheduler"
    if how.get("drafts"):
        args["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 4,
        }
    return args


def generate(how: dict[str, Any]) -> dict[str, Any]:
    """Run the requests; return tokens by request, who ended in which order, and some counts."""
    engine = LLMEngine.from_engine_args(
        EngineArgs(**engine_args(os.environ["HEADWAY_TEST_MODEL"], how))
    )
    tokens: dict[str, list[int]] = {}
    ended: list[str] = []

    def ask(name: str, priority: int, text: str, max_tokens: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        engine.add_request(name, text, params, priority=priority)

    def step() -> None:
        for output in engine.step():
            tokens[output.request_id] = list(output.outputs[0].token_ids)
            if output.finished:
                ended.append(output.request_id)

    for index in range(NUM_BULK):
        ask(f"bulk{index}", BULK, SEED_TEXT * (2 + index), 60)
    for _ in range(25):
        step()
    for index in range(NUM_CRITICAL):
        ask(f"critical{index}", CRITICAL, f"Question {index}: " + SEED_TEXT * 3, 20)
    while engine.has_unfinished_requests():
        step()
    return {"tokens": tokens, "ended": ended, **counts(engine)}


def counts(engine: LLMEngine) -> dict[str, int]:
    """Return how often vLLM preempted, and how many tokens it drafted and accepted."""
    names = {
        "vllm:num_preemptions": "num_preemptions",
        "vllm:spec_decode_num_draft_tokens": "num_drafted",
        "vllm:spec_decode_num_accepted_tokens": "num_accepted",
    }
    found = dict.fromkeys(names.values(), 0)
    for metric in engine.get_metrics():
        if metric.name in names:
            found[names[metric.name]] += metric.value
    return found


if __name__ == "__main__":
    print_result(generate)
