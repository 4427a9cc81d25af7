"""What does the engine make of a request that came over HTTP?"""

import re
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

from headway.core.tier import Tiers
from headway.engine.request import EngineRequest
from headway.engine.sampling_params import SamplingParams
from headway.errors import InvalidRequestError
from headway.wire.chat import ChatCompletionRequest
from headway.wire.completions import CompletionRequest
from headway.wire.http import single_header
from headway.wire.node import PRIORITY_HEADER, XARG_DEADLINE_S, XARG_TENANT, XARG_WEIGHT
from headway.wire.requests import GenerationRequest

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """For whom a request is, as the gateway says. This server trusts who reaches it."""

    rank: int
    tenant: str
    weight: float
    deadline_s: float | None


def caller_of(request: GenerationRequest, scope: Scope, tiers: Tiers) -> Caller:
    """Return the quality of service that header and body ask for; the header wins.

    Raises InvalidRequestError naming the header or field.
    """
    xargs = dict(request.vllm_xargs or {})
    tenant = xargs.pop(XARG_TENANT, "")
    weight = xargs.pop(XARG_WEIGHT, 1.0)
    deadline_s = xargs.pop(XARG_DEADLINE_S, None)
    for name in xargs:
        param = f"vllm_xargs.{name}"
        raise InvalidRequestError(
            f"Unknown parameter: {param}", param=param, code="unknown_parameter"
        )
    if not isinstance(tenant, str):
        raise _wrong_xarg(XARG_TENANT, "a string")
    if isinstance(weight, str) or weight <= 0:
        raise _wrong_xarg(XARG_WEIGHT, "a number above 0")
    if deadline_s is not None and (
        # Compared, because an integer of any length can be, but not made a float.
        isinstance(deadline_s, str) or not 0 < deadline_s <= sys.float_info.max
    ):
        raise _wrong_xarg(XARG_DEADLINE_S, "a number of seconds above 0")
    rank = tiers.by_priority(_priority(request, scope)).rank
    return Caller(rank=rank, tenant=tenant, weight=weight, deadline_s=deadline_s)


def _wrong_xarg(name: str, wanted: str) -> InvalidRequestError:
    param = f"vllm_xargs.{name}"
    return InvalidRequestError(f"{param} must be {wanted}", param=param)


def _priority(request: GenerationRequest, scope: Scope) -> int:
    value = single_header(scope, PRIORITY_HEADER)
    if value is None:
        return 0 if request.priority is None else request.priority
    if not _INTEGER.fullmatch(value):
        text = f"The header {PRIORITY_HEADER} must be an integer"
        raise InvalidRequestError(text, param=PRIORITY_HEADER)
    return int(value)


def sampling_params_of(request: ChatCompletionRequest | CompletionRequest) -> SamplingParams:
    """Return the sampling that a request asks for, with the API's defaults."""
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "min_tokens": request.min_tokens,
        "ignore_eos": request.ignore_eos,
        "include_stop_str_in_output": request.include_stop_str_in_output,
        "skip_special_tokens": request.skip_special_tokens,
    }
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    biases = {} if request.logit_bias is None else request.logit_bias
    stop_ids = () if request.stop_token_ids is None else tuple(request.stop_token_ids)
    return SamplingParams(
        n=request.num_choices_per_prompt,
        max_tokens=request.max_output_tokens,
        logprobs=request.num_logprobs,
        logit_bias={int(token_id): bias for token_id, bias in biases.items()},
        seed=request.seed,
        stop=request.stops,
        stop_token_ids=stop_ids,
        **settings,
    )


def engine_requests(
    request: ChatCompletionRequest | CompletionRequest,
    prompts: Sequence[Sequence[int]],
    caller: Caller,
) -> list[EngineRequest]:
    """Return one engine request for each prompt, under ids of our own."""
    params = sampling_params_of(request)
    return [
        EngineRequest(
            request_id=uuid.uuid4().hex,
            prompt_token_ids=tuple(prompt),
            params=params,
            rank=caller.rank,
            tenant=caller.tenant,
            weight=caller.weight,
            deadline_s=caller.deadline_s,
            cache_salt="" if request.cache_salt is None else request.cache_salt,
        )
        for prompt in prompts
    ]
