"""What is the OpenAPI document of a server?

Schemas come from the very types that decode and encode, so the document cannot drift from them.
Rules between two fields (say, stream_options only with stream) are not expressible there; breaking
one is a 400 as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

import msgspec

from headway.wire.chat import ChatCompletionRequest
from headway.wire.chat_answers import ChatCompletion, ChatCompletionChunk
from headway.wire.completion_answers import Completion
from headway.wire.completions import CompletionRequest
from headway.wire.errors import ErrorResponse
from headway.wire.health import Health
from headway.wire.models import ModelCard, ModelList
from headway.wire.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)

_REFERENCE = "#/components/schemas/{name}"

_PHRASES = {
    400: "A field is wrong; `error.param` names it",
    401: "No API key, or not a known one",
    403: "The key may not do this",
    404: "No such model or path",
    405: "The path has no such method",
    413: "The body is over the limit",
    415: "The body is compressed",
    429: "No capacity for this request now",
    500: "Internal error",
    502: "A node failed",
    503: "Not able to serve now",
    504: "A node did not answer in time",
}


@dataclass(frozen=True, slots=True)
class Header:
    """A request header that changes the answer."""

    name: str
    description: str
    schema: tuple[tuple[str, Any], ...] = (("type", "string"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    id: str
    summary: str
    request: Any = None
    """Type of the JSON body."""
    answer: Any = None
    """Type of the JSON answer; None: a body of `answer_type`."""
    answer_type: str = "application/json"
    event: Any = None
    """Type of each event, when the answer may be a stream."""
    errors: tuple[int, ...] = (405, 500)
    headers: tuple[Header, ...] = ()


_GENERATION_ERRORS = (400, 404, 405, 413, 415, 500, 503)

CHAT = Operation(
    method="post",
    path="/v1/chat/completions",
    id="createChatCompletion",
    summary="Answer a conversation, whole or as a stream",
    request=ChatCompletionRequest,
    answer=ChatCompletion,
    event=ChatCompletionChunk,
    errors=_GENERATION_ERRORS,
)
COMPLETIONS = Operation(
    method="post",
    path="/v1/completions",
    id="createCompletion",
    summary="Continue texts, whole or as a stream",
    request=CompletionRequest,
    answer=Completion,
    event=Completion,
    errors=_GENERATION_ERRORS,
)
MODELS = Operation(
    method="get",
    path="/v1/models",
    id="listModels",
    summary="List the models that are served",
    answer=ModelList,
)
MODEL = Operation(
    method="get",
    path="/v1/models/{model}",
    id="retrieveModel",
    summary="Describe one model",
    answer=ModelCard,
    errors=(404, 405, 500),
)
TOKENIZE = Operation(
    method="post",
    path="/tokenize",
    id="tokenize",
    summary="Turn a text or a conversation into token ids",
    request=TokenizeRequest,
    answer=TokenizeResponse,
    errors=(400, 404, 405, 413, 415, 500),
)
DETOKENIZE = Operation(
    method="post",
    path="/detokenize",
    id="detokenize",
    summary="Turn token ids into text",
    request=DetokenizeRequest,
    answer=DetokenizeResponse,
    errors=(400, 404, 405, 413, 415, 500),
)
HEALTH = Operation(
    method="get",
    path="/health",
    id="health",
    summary="Tell whether the process can serve",
    answer=Health,
    errors=(405, 500, 503),
)
READY = Operation(
    method="get",
    path="/ready",
    id="ready",
    summary="Tell whether new requests are welcome",
    answer=Health,
    errors=(405, 500, 503),
)
EXPLAIN = Operation(
    method="get",
    path="/v1/qos/explain/{id}",
    id="explainRequest",
    summary="Tell what happened to a request, and why",
    answer=dict[str, Any],
    errors=(400, 401, 404, 405, 500),
)
METRICS = Operation(
    method="get",
    path="/metrics",
    id="metrics",
    summary="Metrics in Prometheus' text format",
    answer_type="text/plain",
)
DOCUMENT = Operation(
    method="get",
    path="/openapi.json",
    id="openapi",
    summary="This document",
    answer=dict[str, Any],
)

_PRIORITY = Header("X-Priority", "Name of the tier asked for")
_NODE_PRIORITY = Header(
    "X-Vllm-Priority",
    "Urgency, lower is sooner; wins over `priority` in the body",
    (("type", "integer"), ("minimum", -(2**31)), ("maximum", 2**31 - 1)),
)
_GATEWAY_ERRORS = (400, 401, 403, 404, 405, 413, 415, 429, 500, 502, 503, 504)

GATEWAY_OPERATIONS = (
    replace(CHAT, headers=(_PRIORITY,), errors=_GATEWAY_ERRORS),
    replace(COMPLETIONS, headers=(_PRIORITY,), errors=_GATEWAY_ERRORS),
    replace(MODELS, errors=(400, 401, 405, 500)),
    replace(MODEL, errors=(400, 401, 404, 405, 500)),
    EXPLAIN,
    HEALTH,
    READY,
    METRICS,
    DOCUMENT,
)
"""What clients see."""

ENGINE_OPERATIONS = (
    replace(CHAT, headers=(_NODE_PRIORITY,)),
    replace(COMPLETIONS, headers=(_NODE_PRIORITY,)),
    MODELS,
    MODEL,
    TOKENIZE,
    DETOKENIZE,
    HEALTH,
    METRICS,
    DOCUMENT,
)
"""What a gateway sees of a node."""


def openapi_document(
    operations: Sequence[Operation] = GATEWAY_OPERATIONS, *, title: str = "headway"
) -> bytes:
    """Return the OpenAPI 3.1 document, as JSON."""
    types: list[Any] = [ErrorResponse]
    for operation in operations:
        wanted = (operation.request, operation.answer, operation.event)
        types += [one for one in wanted if one is not None and one not in types]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _describe(operation, schema_of)
        paths.setdefault(operation.path, {})[operation.method] = described
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": title, "version": version("headway")},
            "paths": paths,
            "components": {"schemas": components},
        }
    )


def _describe(operation: Operation, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": {"200": _answer(operation, schema_of)},
    }
    for status in operation.errors:
        content = {"application/json": {"schema": schema_of[ErrorResponse]}}
        described["responses"][str(status)] = {
            "description": _PHRASES[status],
            "content": content,
        }
    if operation.request is not None:
        content = {"application/json": {"schema": schema_of[operation.request]}}
        described["requestBody"] = {"required": True, "content": content}
    parameters = [*_path_parameters(operation.path), *map(_header_parameter, operation.headers)]
    if parameters:
        described["parameters"] = parameters
    return described


def _answer(operation: Operation, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    schema = {"type": "string"} if operation.answer is None else schema_of[operation.answer]
    content: dict[str, Any] = {operation.answer_type: {"schema": schema}}
    if operation.event is not None:
        each = schema_of[operation.event]
        content["text/event-stream"] = {"schema": {"type": "string"}, "x-event-schema": each}
    return {"description": "Done", "content": content}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    string = {"type": "string", "minLength": 1}
    return [{"name": n, "in": "path", "required": True, "schema": string} for n in names]


def _header_parameter(header: Header) -> dict[str, Any]:
    return {
        "name": header.name,
        "in": "header",
        "required": False,
        "description": header.description,
        "schema": dict(header.schema),
    }
