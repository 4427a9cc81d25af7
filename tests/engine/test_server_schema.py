"""Does the server keep to its own OpenAPI document, whatever schemathesis sends?"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from headway.wire.openapi import ENGINE_OPERATIONS, openapi_document
from tests.engine.server_stage import Stage, stage

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

SCHEMA = schemathesis.openapi.from_dict(json.loads(openapi_document(ENGINE_OPERATIONS)))


@pytest.fixture(scope="module", name="one")
def served() -> Iterator[Stage]:
    with stage() as one:
        yield one


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_document_is_kept(case: schemathesis.Case[Any], one: Stage) -> None:
    case.call_and_validate(base_url=one.url, checks=CHECKS)
