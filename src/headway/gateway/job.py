"""What is sent to the node, and what will it cost?

The node's body is written anew from the fields that passed validation, so nothing that a client
adds gets through. Whatever speaks of quality of service in it is ours: `priority` and
`service_tier` are taken out (the one priority a node gets is a header), `cache_salt` is derived
from the tenant and only narrowed by the client's, `vllm_xargs` names the tenant and its weight. The
one thing a client may say there is `headway_deadline_s`, which ends its own wait; the node is told
how much of it is left.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

import msgspec

from headway.core.backlog import QueuedRequest
from headway.core.cost import (
    OutputEstimator,
    Prices,
    estimate_prompt_tokens,
    request_cost,
)
from headway.core.tier import Tier, node_priority
from headway.errors import InvalidRequestError
from headway.gateway.events import Translator
from headway.gateway.identity import Caller
from headway.gateway.prefix import prefix_key
from headway.wire.chat import ChatCompletionRequest, decode_chat
from headway.wire.completions import CompletionRequest, decode_completion
from headway.wire.node import (
    PRIORITY_HEADER,
    REQUEST_ID_HEADER,
    XARG_DEADLINE_S,
    XARG_TENANT,
    XARG_WEIGHT,
)
from headway.wire.requests import StreamOptions

Request = ChatCompletionRequest | CompletionRequest

TOKENS_PER_MESSAGE = 6
"""What a chat template adds around each message, about."""
UNBOUNDED_OUTPUT_TOKENS = 4096
"""What an answer without a limit is given time for."""
LEAST_DEADLINE_S = 0.001
"""What is left at least of the deadline of a request that is sent: it has to be above 0."""
SLOWEST_TOKEN_S = 1.0
"""An answer that is not streamed shows no life before its end; it is given this long per token."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One of the two generation endpoints."""

    path: str
    decode: Callable[[bytes], Request]


CHAT = Endpoint("/v1/chat/completions", decode_chat)
COMPLETIONS = Endpoint("/v1/completions", decode_completion)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a valid body asks for. Of the prompt it holds only the node's copy, in `body`."""

    model: str
    service_tier: str | None
    streams: bool
    include_usage: bool
    continuous_usage: bool
    num_choices: int
    max_output_tokens: int | None
    num_prompt_tokens: int
    prefix: str | None
    """What the prompt begins with, for choosing a node that has it; None: too short to matter."""
    deadline_s: float | None
    """How long the answer is wanted, from its arrival; None: for ever."""
    body: bytes
    """For the node; with a deadline, without `xargs`, which say how much time is left."""
    xargs: Mapping[str, str | float]


@dataclass(frozen=True, slots=True)
class Job:
    """One request, ready to be queued and sent. It can be sent more than once."""

    path: str
    queued: QueuedRequest
    order: Order
    service_tier: str

    def headers_at(self, rank: int) -> dict[str, str]:
        """Return the headers for a node that serves it in the tier of `rank`."""
        return {
            "Content-Type": "application/json",
            PRIORITY_HEADER: str(node_priority(rank)),
            REQUEST_ID_HEADER: self.queued.request_id,
        }

    def body_at(self, now: float) -> bytes:
        """Return the body for a node that is asked now."""
        body, deadline = self.order.body, self.queued.deadline
        if deadline is None:
            return body
        xargs = {**self.order.xargs, XARG_DEADLINE_S: max(LEAST_DEADLINE_S, deadline - now)}
        return b'%b,"vllm_xargs":%b}' % (body[:-1], msgspec.json.encode(xargs))

    def translator(self) -> Translator:
        """Return what turns one node's answer into the client's."""
        return Translator(
            self.service_tier,
            num_prompt_tokens=self.order.num_prompt_tokens,
            num_choices=self.order.num_choices,
            include_usage=self.order.include_usage,
            continuous_usage=self.order.continuous_usage,
        )

    def whole_timeout_s(self, first_byte_timeout_s: float) -> float:
        """Return how long an answer that is not streamed may take in all."""
        limit = self.order.max_output_tokens
        tokens = UNBOUNDED_OUTPUT_TOKENS if limit is None else min(limit, UNBOUNDED_OUTPUT_TOKENS)
        return first_byte_timeout_s + tokens * SLOWEST_TOKEN_S


class JobMaker:
    """Makes jobs, and learns from their ends how long answers are."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._outputs = OutputEstimator()

    def make(
        self,
        request_id: str,
        endpoint: Endpoint,
        order: Order,
        caller: Caller,
        tier: Tier,
        now: float,
    ) -> Job:
        """Return the job of a request that `caller` may run in `tier`."""
        prompt_tokens = order.num_prompt_tokens
        per_choice = self._outputs.expected(tier.rank, caller.tenant, order.max_output_tokens)
        output_tokens = per_choice * order.num_choices
        return Job(
            path=endpoint.path,
            queued=QueuedRequest(
                request_id=request_id,
                rank=tier.rank,
                tenant=caller.tenant,
                weight=caller.weight,
                cost=request_cost(self._prices, prompt_tokens, output_tokens),
                tokens=prompt_tokens + output_tokens,
                arrival=now,
                deadline=None if order.deadline_s is None else now + order.deadline_s,
                prompt_tokens=prompt_tokens,
                highest_rank=caller.highest_rank,
            ),
            order=order,
            service_tier=tier.service_tier,
        )

    def cost(self, prompt_tokens: int, output_tokens: int, cached_tokens: int) -> float:
        """Return the actual cost of what was served."""
        cached = min(cached_tokens, prompt_tokens)
        return request_cost(self._prices, prompt_tokens, output_tokens, cached)

    def completed(self, job: Job, output_tokens: int) -> None:
        """Learn from an answer that came to its end."""
        per_choice = output_tokens // job.order.num_choices
        self._outputs.observe(job.queued.rank, job.queued.tenant, per_choice)


def read_order(endpoint: Endpoint, body: bytes, caller: Caller) -> Order:
    """Return what a body asks for. Raises InvalidRequestError. May run on any thread."""
    request = endpoint.decode(body)
    salt = derive_salt(caller.tenant, "" if request.cache_salt is None else request.cache_salt)
    deadline_s = _deadline_s(request)
    xargs: dict[str, str | float] = {XARG_TENANT: caller.tenant, XARG_WEIGHT: caller.weight}
    return Order(
        model=request.model,
        service_tier=request.service_tier,
        streams=request.streams,
        include_usage=request.include_usage,
        continuous_usage=request.continuous_usage,
        num_choices=request.num_choices,
        max_output_tokens=request.max_output_tokens,
        num_prompt_tokens=count_prompt_tokens(request),
        prefix=prefix_key(request, salt),
        deadline_s=deadline_s,
        body=node_body(request, salt, xargs if deadline_s is None else None),
        xargs=xargs,
    )


def count_prompt_tokens(request: Request) -> int:
    """Return about how many tokens the prompt has; exact for token ids."""
    if isinstance(request, ChatCompletionRequest):
        num_bytes = sum(_num_bytes(message.text) for message in request.messages)
        return estimate_prompt_tokens(num_bytes) + TOKENS_PER_MESSAGE * len(request.messages)
    return sum(
        estimate_prompt_tokens(_num_bytes(prompt)) if isinstance(prompt, str) else len(prompt)
        for prompt in request.prompts
    )


def node_body(request: Request, salt: str, xargs: Mapping[str, str | float] | None) -> bytes:
    """Return the body for the node; `salt` is that of the tenant's prefix cache."""
    options = None
    if request.streams:
        continuous = True if request.continuous_usage else None
        options = StreamOptions(include_usage=True, continuous_usage_stats=continuous)
    ours = msgspec.structs.replace(
        request,
        stream_options=options,
        service_tier=None,
        priority=None,
        cache_salt=salt,
        vllm_xargs=xargs,
    )
    return msgspec.json.encode(ours)


@lru_cache(maxsize=1024)
def derive_salt(tenant: str, salt: str) -> str:
    """Return the salt of the tenant's prefix cache. No `salt` reaches another tenant's."""
    name = tenant.encode()
    return sha256(b"%d:%b:%b" % (len(name), name, salt.encode())).hexdigest()


def _deadline_s(request: Request) -> float | None:
    """Return how long the client wants the answer. Raises InvalidRequestError."""
    seconds = (request.vllm_xargs or {}).get(XARG_DEADLINE_S)
    if seconds is None:
        return None
    # Compared, because an integer of any length can be, but not made a float.
    if isinstance(seconds, str) or not 0 < seconds <= sys.float_info.max:
        param = f"vllm_xargs.{XARG_DEADLINE_S}"
        raise InvalidRequestError(f"{param} must be a number of seconds above 0", param=param)
    return seconds


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
