"""Does the OpenAPI document describe what the decoders take?"""

import json
from typing import Any

import pytest

from headway.wire.chat import ChatCompletionRequest
from headway.wire.openapi import ENGINE_OPERATIONS, GATEWAY_OPERATIONS, Operation, openapi_document

DOCUMENTS = [GATEWAY_OPERATIONS, ENGINE_OPERATIONS]


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set[str]()
        return own.union(*map(references, part.values()))
    if isinstance(part, list):
        return set[str]().union(*map(references, part))
    return set()


@pytest.mark.parametrize("operations", DOCUMENTS)
def test_every_reference_leads_somewhere(operations: tuple[Operation, ...]) -> None:
    document = json.loads(openapi_document(operations))
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


@pytest.mark.parametrize("operations", DOCUMENTS)
def test_every_operation_is_there_once(operations: tuple[Operation, ...]) -> None:
    document = json.loads(openapi_document(operations))
    ids = [one["operationId"] for by in document["paths"].values() for one in by.values()]
    assert sorted(ids) == sorted(operation.id for operation in operations)


def test_fields_and_ranges_are_the_decoders() -> None:
    schema = json.loads(openapi_document())["components"]["schemas"]["ChatCompletionRequest"]
    assert set(schema["properties"]) == set(ChatCompletionRequest.__struct_fields__)
    assert schema["additionalProperties"] is False
    assert sorted(schema["required"]) == ["messages", "model"]
    temperature = {"type": "number", "minimum": 0, "maximum": 2}
    assert temperature in schema["properties"]["temperature"]["anyOf"]


def test_a_stream_is_offered_beside_the_whole_answer() -> None:
    paths = json.loads(openapi_document())["paths"]
    answer = paths["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert set(answer) == {"application/json", "text/event-stream"}
