"""Is a generation request taken, and what happens to it then?"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from starlette.types import Receive, Scope, Send

from headway.clock import Clock
from headway.core.tier import Tiers
from headway.engine.answers import Answer, ChatAnswer, CompletionAnswer
from headway.engine.async_engine import AsyncEngine
from headway.engine.intake import caller_of, engine_requests
from headway.engine.output_stream import OutputStream
from headway.engine.prompts import PromptReader
from headway.engine.reply import Reply
from headway.engine.request import EngineRequest
from headway.engine.timing import Timing
from headway.engine.tokenizer import Tokenizer
from headway.errors import InvalidRequestError, ModelNotFoundError
from headway.metrics.engine import EngineMetrics
from headway.wire.chat import ChatCompletionRequest, decode_chat
from headway.wire.completions import CompletionRequest, decode_completion
from headway.wire.errors import error_body
from headway.wire.event_stream import WriteTimeoutError
from headway.wire.http import Headers, read_body, run_until_disconnect, send_bytes
from headway.wire.offload import Offload
from headway.wire.routing import reply_headers

RETRY_AFTER: Headers = ((b"retry-after", b"1"), (b"retry-after-ms", b"1000"))

Request = ChatCompletionRequest | CompletionRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """What the engine's HTTP server can be told."""

    model_name: str
    tiers: Tiers = field(default_factory=Tiers)
    max_body_bytes: int = 8 * 1024 * 1024
    max_num_queued_reqs: int = 1024
    """Most sequences that wait for a place in the batch; beyond it, 503."""
    write_timeout_s: float = 30.0
    heartbeat_s: float = 10.0

    def check_model(self, model: str | None) -> None:
        """Raise ModelNotFoundError unless `model` is the one served here, or not given."""
        if model is not None and model != self.model_name:
            text = f"The model {model[:200]!r} is not served here"
            raise ModelNotFoundError(text, param="model")


class Generator:
    """Serves both generation endpoints."""

    def __init__(
        self,
        engine: AsyncEngine,
        tokenizer: Tokenizer,
        prompts: PromptReader,
        bodies: Offload,
        metrics: EngineMetrics,
        options: ServerOptions,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._bodies = bodies
        self._prompts = prompts
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._num_open = 0
        """Sequences accepted and not ended; the engine's own count is one step old."""

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/chat/completions`."""
        await self._take(decode_chat, scope, receive, send)

    async def completion(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/completions`."""
        await self._take(decode_completion, scope, receive, send)

    async def _take(
        self, decode: Callable[[bytes], Request], scope: Scope, receive: Receive, send: Send
    ) -> None:
        arrived = self._clock.now()
        body = await read_body(scope, receive, self._options.max_body_bytes)
        await run_until_disconnect(receive, self._serve(decode, body, arrived, scope, send))

    async def _serve(
        self,
        decode: Callable[[bytes], Request],
        body: bytes,
        arrived: float,
        scope: Scope,
        send: Send,
    ) -> None:
        request = await self._bodies.run(len(body), partial(decode, body))
        self._options.check_model(request.model)
        caller = caller_of(request, scope, self._options.tiers)
        if self._is_full():
            await self._send_full(scope, send)
            return
        # Counted before the prompt is read: many long ones may be read at once.
        num_choices = request.num_choices
        self._num_open += num_choices
        try:
            prompts = await self._read_prompts(request, len(body))
            timing = Timing(
                self._clock,
                arrived,
                num_prompt_tokens=sum(map(len, prompts)),
                max_tokens=request.max_output_tokens,
            )
            streams = await self._submit(request, engine_requests(request, prompts, caller))
            reply = Reply(
                answer=self._answer(request, prompts),
                streams=streams,
                timing=timing,
                include_usage=request.include_usage,
                continuous_usage=request.continuous_usage,
                write_timeout_s=self._options.write_timeout_s,
                heartbeat_s=self._options.heartbeat_s,
                scope=scope,
                send=send,
            )
            await self._send(reply, request)
        finally:
            self._num_open -= num_choices

    async def _send(self, reply: Reply, request: Request) -> None:
        """Send the answer; one that was not delivered whole is not measured."""
        try:
            await (reply.stream() if request.streams else reply.whole())
        except WriteTimeoutError:
            _log.warning("cut a client that did not read")
        else:
            self._metrics.completed(reply.timing.times)
        finally:
            for stream in reply.streams:
                await stream.aclose()

    def _is_full(self) -> bool:
        stats = self._engine.stats()
        # Where memory is short, not all seats are taken.
        waiting = max(stats.num_passed_over, self._num_open - stats.max_num_seqs)
        return waiting >= self._options.max_num_queued_reqs

    async def _send_full(self, scope: Scope, send: Send) -> None:
        self._metrics.rejected()
        text = f"The queue is full: {self._options.max_num_queued_reqs} sequences wait"
        body = error_body(text, "server_error", code="server_overloaded")
        await send_bytes(send, 503, body, [*reply_headers(scope), *RETRY_AFTER])

    async def _read_prompts(self, request: Request, num_bytes: int) -> list[list[int]]:
        if isinstance(request, ChatCompletionRequest):
            return [
                await self._prompts.chat(
                    request.messages,
                    add_generation_prompt=request.add_generation_prompt,
                    continue_final_message=request.continue_final_message,
                    add_special_tokens=request.add_special_tokens,
                    kwargs=request.chat_template_kwargs,
                    num_bytes=num_bytes,
                )
            ]
        special = request.add_special_tokens is not False
        return [
            await self._prompts.text(prompt, add_special_tokens=special)
            if isinstance(prompt, str)
            else prompt
            for prompt in request.prompts
        ]

    async def _submit(
        self, request: Request, requests: Sequence[EngineRequest]
    ) -> list[OutputStream]:
        """Hand all prompts to the engine. What it refuses, it refuses under the caller's names."""
        streams: list[OutputStream] = []
        try:
            for one in requests:
                streams.append(self._engine.generate(one))
        except InvalidRequestError as error:
            for stream in streams:
                await stream.aclose()
            raise _in_callers_words(error, request) from None
        return streams

    def _answer(self, request: Request, prompts: list[list[int]]) -> Answer:
        name = self._options.model_name
        if isinstance(request, ChatCompletionRequest):
            return ChatAnswer(request, self._tokenizer, name, prompts)
        return CompletionAnswer(request, self._tokenizer, name, prompts)


def _in_callers_words(error: InvalidRequestError, request: Request) -> InvalidRequestError:
    """Name the field as the request does: a conversation has no `prompt`."""
    param = error.param
    if isinstance(request, ChatCompletionRequest):
        renamed = {"prompt": "messages"}
        if request.max_completion_tokens is not None:
            renamed["max_tokens"] = "max_completion_tokens"
        param = None if param is None else renamed.get(param, param)
    return InvalidRequestError(error.message, param=param, code=error.code)
