"""Which page of the engine's HTTP server shows what?"""

import time

import msgspec
from starlette.types import Receive, Scope, Send

from headway.clock import Clock, MonotonicClock
from headway.core.tier import Tiers
from headway.engine.async_engine import AsyncEngine
from headway.engine.generation import Generator, ServerOptions
from headway.engine.prompts import PromptReader
from headway.engine.stats import EngineStats
from headway.engine.tokenizer import Tokenizer
from headway.errors import EngineDeadError, InvalidRequestError
from headway.metrics.engine import CONTENT_TYPE, EngineMetrics, EngineReading
from headway.wire.health import Health
from headway.wire.http import read_body, send_bytes
from headway.wire.models import ModelCard, ModelList
from headway.wire.offload import INLINE_BODY_BYTES, Offload
from headway.wire.openapi import ENGINE_OPERATIONS, openapi_document
from headway.wire.routing import Router, reply_headers
from headway.wire.tokenize import (
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    decode_detokenize,
    decode_tokenize,
)

MODEL_PATH = "/v1/models/"
_BYTES_PER_TOKEN = 64
"""What showing a token costs beside reading a byte."""


class Pages:
    """Every page that does not generate."""

    def __init__(
        self,
        engine: AsyncEngine,
        tokenizer: Tokenizer,
        prompts: PromptReader,
        bodies: Offload,
        metrics: EngineMetrics,
        options: ServerOptions,
    ) -> None:
        self._engine = engine
        self._bodies = bodies
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._metrics = metrics
        self._options = options
        self._max_model_len = engine.engine.fit.max_num_tokens
        self._card = ModelCard(
            id=options.model_name,
            created=int(time.time()),
            owned_by="headway",
            max_model_len=self._max_model_len,
        )
        self._document = openapi_document(ENGINE_OPERATIONS, title="headway engine")

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """200 while the engine takes requests, however many there are. Raises EngineDeadError."""
        if not self._engine.alive:
            raise EngineDeadError("the engine does not take requests")
        await _send_json(scope, send, Health())

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The metrics in Prometheus' text format."""
        body = self._metrics.render()
        await send_bytes(send, 200, body, reply_headers(scope), content_type=CONTENT_TYPE)

    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The OpenAPI document."""
        await send_bytes(send, 200, self._document, reply_headers(scope))

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The one model."""
        await _send_json(scope, send, ModelList([self._card]))

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The model by its name. Raises ModelNotFoundError."""
        self._options.check_model(scope["path"].removeprefix(MODEL_PATH))
        await _send_json(scope, send, self._card)

    async def tokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Text or conversation to token ids."""
        body = await read_body(scope, receive, self._options.max_body_bytes)
        request = await self._bodies.run(len(body), lambda: decode_tokenize(body))
        self._options.check_model(request.model)
        tokens = await self._tokens(request, len(body))

        def answer() -> bytes:
            texts = [self._tokenizer.token_text(token_id) for token_id in tokens]
            return msgspec.json.encode(
                TokenizeResponse(
                    count=len(tokens),
                    max_model_len=self._max_model_len,
                    tokens=tokens,
                    token_strs=texts if request.return_token_strs is True else None,
                )
            )

        shown = await self._bodies.run(len(tokens) * _BYTES_PER_TOKEN, answer)
        await send_bytes(send, 200, shown, reply_headers(scope))

    async def _tokens(self, request: TokenizeRequest, num_bytes: int) -> list[int]:
        if request.messages is None:
            text = "" if request.prompt is None else request.prompt
            special = request.add_special_tokens is not False
            return await self._prompts.text(text, add_special_tokens=special)
        return await self._prompts.chat(
            request.messages,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            add_special_tokens=request.add_special_tokens,
            kwargs=request.chat_template_kwargs,
            num_bytes=num_bytes,
        )

    async def detokenize(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Token ids to text. Raises InvalidRequestError for one that does not exist."""
        body = await read_body(scope, receive, self._options.max_body_bytes)
        shown = await self._bodies.run(len(body), lambda: self._detokenized(body))
        await send_bytes(send, 200, shown, reply_headers(scope))

    def _detokenized(self, body: bytes) -> bytes:
        request = decode_detokenize(body)
        self._options.check_model(request.model)
        if any(token_id >= self._tokenizer.vocab_size for token_id in request.tokens):
            text = f"tokens must be below {self._tokenizer.vocab_size}"
            raise InvalidRequestError(text, param="tokens")
        text = self._tokenizer.decode(request.tokens, skip_special_tokens=False)
        return msgspec.json.encode(DetokenizeResponse(text))


async def _send_json(scope: Scope, send: Send, value: msgspec.Struct) -> None:
    await send_bytes(send, 200, msgspec.json.encode(value), reply_headers(scope))


def build_app(engine: AsyncEngine, options: ServerOptions, *, clock: Clock | None = None) -> Router:
    """Return the ASGI app of an engine. It starts and stops the engine with its own lifespan."""
    clock = MonotonicClock() if clock is None else clock
    tokenizer = engine.engine.tokenizer
    prompts = PromptReader(tokenizer, engine.engine.fit.max_num_tokens)
    bodies = Offload("headway-bodies", inline_up_to=INLINE_BODY_BYTES)
    metrics = EngineMetrics(options.model_name, lambda: _reading(engine.stats(), options.tiers))
    generator = Generator(engine, tokenizer, prompts, bodies, metrics, options, clock)
    pages = Pages(engine, tokenizer, prompts, bodies, metrics, options)

    async def start() -> None:
        engine.start()

    async def stop() -> None:
        prompts.close()
        bodies.close()
        await engine.stop()

    routes = {
        "/v1/chat/completions": {"POST": generator.chat},
        "/v1/completions": {"POST": generator.completion},
        "/v1/models": {"GET": pages.models},
        MODEL_PATH: {"GET": pages.model},
        "/tokenize": {"POST": pages.tokenize},
        "/detokenize": {"POST": pages.detokenize},
        "/health": {"GET": pages.health},
        "/metrics": {"GET": pages.metrics},
        "/openapi.json": {"GET": pages.openapi},
    }
    return Router(routes, on_start=start, on_stop=stop)


def _reading(stats: EngineStats, tiers: Tiers) -> EngineReading:
    return EngineReading(
        tier_names=[tier.name for tier in tiers.all],
        num_running=stats.num_running,
        num_waiting=stats.num_waiting,
        num_held_blocks=stats.num_held_blocks,
        num_cached_blocks=stats.num_cached_blocks,
        num_free_blocks=stats.num_free_blocks,
        block_size=stats.block_size,
        max_num_seqs=stats.max_num_seqs,
        num_preemptions=stats.num_preemptions,
        num_prompt_tokens=stats.num_prompt_tokens,
        num_generation_tokens=stats.num_generation_tokens,
        num_prefix_queries=stats.num_prefix_queries,
        num_prefix_hits=stats.num_prefix_hits,
        num_steps=stats.num_steps,
        num_batched_tokens=stats.num_batched_tokens,
        busy_s=stats.busy_s,
        step_s=stats.step_s,
        predicted_s=stats.predicted_s,
        num_late_steps=stats.num_late_steps,
        safety=stats.safety,
        num_finished=stats.num_finished,
    )
