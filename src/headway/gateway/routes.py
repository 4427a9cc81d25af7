"""Which page of the gateway shows what?"""

from collections.abc import Callable
from functools import cache, partial

import msgspec
from starlette.types import Receive, Scope, Send

from headway.core.outcome import Outcome
from headway.errors import InvalidRequestError, ModelNotFoundError
from headway.flowcontrol.nodes import NodePool
from headway.gateway.explain import ExplainRing
from headway.gateway.generate import Generator
from headway.gateway.identity import Caller, Identity
from headway.gateway.job import CHAT, COMPLETIONS
from headway.gateway.probe import Prober
from headway.gateway.responses import answer_for, error_answer
from headway.metrics.gateway import CONTENT_TYPE, GatewayMetrics
from headway.wire.health import Health
from headway.wire.http import send_bytes, single_header
from headway.wire.openapi import openapi_document
from headway.wire.routing import Routes, reply_headers

EXPLAIN_PATH = "/v1/qos/explain/"
MODEL_PATH = "/v1/models/"


class Pages:
    """Every page that is not a generation endpoint. None of them waits for a node or a queue."""

    def __init__(
        self,
        identity: Identity,
        pool: NodePool,
        prober: Prober,
        ring: ExplainRing,
        metrics: GatewayMetrics,
        is_draining: Callable[[], bool],
    ) -> None:
        self._identity = identity
        self._pool = pool
        self._prober = prober
        self._ring = ring
        self._metrics = metrics
        self._is_draining = is_draining

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """200 when the gateway lives and a node is well, however loaded; else 503."""
        await self._send_state(scope, send, None if self._pool.any_healthy() else _NO_NODE)

    async def ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """200 when new requests are welcome: a node is well, and the gateway is not draining."""
        missing = _DRAINING if self._is_draining() else _NO_NODE
        ready = self._pool.any_healthy() and not self._is_draining()
        await self._send_state(scope, send, None if ready else missing)

    async def metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The metrics in Prometheus' text format."""
        body = self._metrics.render()
        await send_bytes(send, 200, body, reply_headers(scope), content_type=CONTENT_TYPE)

    async def openapi(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The OpenAPI document."""
        await send_bytes(send, 200, _document(), reply_headers(scope))

    async def models(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The models of all nodes."""
        self._caller(scope)
        await _send_json(scope, send, self._prober.models())

    async def model(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One model."""
        self._caller(scope)
        wanted = scope["path"].removeprefix(MODEL_PATH)
        for card in self._prober.models().data:
            if card.id == wanted:
                await _send_json(scope, send, card)
                return
        text = f"the model '{wanted[:200]}' is not served here"
        raise ModelNotFoundError(text, param="model")

    async def explain(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What happened to one of the caller's own requests."""
        caller = self._caller(scope)
        record = self._ring.find(caller.tenant, scope["path"].removeprefix(EXPLAIN_PATH))
        if record is None:
            raise _UnknownRequestError("no such request is remembered", param="id")
        await _send_json(scope, send, record)

    def _caller(self, scope: Scope) -> Caller:
        return self._identity.authenticate(single_header(scope, "authorization"))

    async def _send_state(self, scope: Scope, send: Send, missing: Outcome | None) -> None:
        if missing is None:
            await send_bytes(send, 200, msgspec.json.encode(Health()), reply_headers(scope))
            return
        status, headers, body = error_answer(answer_for(missing))
        await send_bytes(send, status, body, [*reply_headers(scope), *headers])


_NO_NODE = Outcome.REJECTED_NO_ENDPOINTS
_DRAINING = Outcome.REJECTED_SHUTTING_DOWN


class _UnknownRequestError(InvalidRequestError):
    """Nothing is known of that id, or nothing that this caller may know."""

    status = 404
    default_code = "request_not_found"


@cache
def _document() -> bytes:
    return openapi_document()


async def _send_json(scope: Scope, send: Send, value: msgspec.Struct) -> None:
    await send_bytes(send, 200, msgspec.json.encode(value), reply_headers(scope))


def build_routes(generator: Generator, pages: Pages) -> Routes:
    """Return every path of the gateway with its methods."""
    return {
        CHAT.path: {"POST": partial(generator.serve, CHAT)},
        COMPLETIONS.path: {"POST": partial(generator.serve, COMPLETIONS)},
        "/v1/models": {"GET": pages.models},
        MODEL_PATH: {"GET": pages.model},
        EXPLAIN_PATH: {"GET": pages.explain},
        "/health": {"GET": pages.health},
        "/ready": {"GET": pages.ready},
        "/metrics": {"GET": pages.metrics},
        "/openapi.json": {"GET": pages.openapi},
    }
