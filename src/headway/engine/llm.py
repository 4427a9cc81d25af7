"""How are many prompts answered in one call?"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway.engine.engine import LLMEngine
from headway.engine.merge import merge_outputs
from headway.engine.request import Choice, Completion, FinishReason, Generation, RequestOutput
from headway.engine.sampling_params import SamplingParams

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


class LLM:
    """Offline calls, as vLLM's `LLM`, on an engine that exists or a new one with `settings`."""

    def __init__(self, model: str | LLMEngine = "smollm2-135m", **settings: Any) -> None:
        self.engine = LLMEngine(model, **settings) if isinstance(model, str) else model
        self._num_calls = 0

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tier: str | int = "normal",
        tenant: str = "",
    ) -> list[Generation]:
        """Answer prompts, text or tokens, in their order.

        `params` are for all prompts or one each. Raises InvalidRequestError, with nothing left
        behind, when one prompt never fits, and ValueError when `params` are too few or too many, or
        while the engine has requests of others, whose outputs only `engine.step` would return.
        """
        each = _as_list(prompts)
        return self._run([self._tokens(prompt) for prompt in each], params, tier, tenant)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tier: str | int = "normal",
        tenant: str = "",
    ) -> list[Generation]:
        """Answer one conversation or several, by the model's chat template."""
        tokenizer = self.engine.tokenizer
        prompts = [
            tokenizer.encode(tokenizer.render_chat(chat), add_special_tokens=False)
            for chat in _as_chats(messages)
        ]
        return self._run(prompts, params, tier, tenant)

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self.engine.tokenizer.encode(prompt)
        return list(prompt)

    def _run(
        self,
        prompts: list[list[int]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        tier: str | int,
        tenant: str,
    ) -> list[Generation]:
        if self.engine.has_unfinished():
            raise ValueError("the engine has other requests: take their outputs first, by step()")
        if params is None:
            params = SamplingParams()
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        self._num_calls += 1
        request_ids = [f"llm-{self._num_calls}-{index}" for index in range(len(prompts))]
        outputs: dict[str, list[RequestOutput]] = {request_id: [] for request_id in request_ids}
        try:
            for request_id, prompt, own in zip(request_ids, prompts, each, strict=True):
                self.engine.add_request(request_id, prompt, own, tier=tier, tenant=tenant)
            while not all(gained and gained[-1].finished for gained in outputs.values()):
                for output in self.engine.step():
                    if output.request_id in outputs:
                        outputs[output.request_id].append(output)
        finally:
            for request_id in request_ids:
                self.engine.abort(request_id)
        return [
            _generation(request_id, prompt, outputs[request_id])
            for request_id, prompt in zip(request_ids, prompts, strict=True)
        ]


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(token_id, int) for token_id in prompts):
        return [[token_id for token_id in prompts if isinstance(token_id, int)]]
    return [prompt for prompt in prompts if not isinstance(prompt, int)]


def _as_chats(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> list[list[Message]]:
    single = [message for message in messages if isinstance(message, Mapping)]
    if single:
        return [single]
    return [list(chat) for chat in messages if not isinstance(chat, Mapping)]


def _generation(request_id: str, prompt: list[int], outputs: list[RequestOutput]) -> Generation:
    whole = merge_outputs(outputs)
    completions = tuple(_completion(choice) for choice in whole.choices)
    return Generation(request_id, tuple(prompt), completions, whole.num_cached_tokens)


def _completion(choice: Choice) -> Completion:
    reason = FinishReason.ABORT if choice.finish_reason is None else choice.finish_reason
    return Completion(
        index=choice.index,
        text=choice.text,
        token_ids=choice.token_ids,
        finish_reason=reason,
        stop_reason=choice.stop_reason,
        logprobs=choice.logprobs,
    )
