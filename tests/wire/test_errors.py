"""Does every error have OpenAI's shape, with a string as its code?"""

import json

import pytest

from headway.errors import (
    AuthenticationError,
    BodyTooLargeError,
    EngineDeadError,
    HeadwayError,
    InvalidRequestError,
    ModelNotFoundError,
    NodeError,
    OutOfBlocksError,
    PermissionDeniedError,
)
from headway.wire.errors import client_error_body, error_body, error_response, error_status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequestError("m", param="p"), 400),
        (AuthenticationError("m"), 401),
        (PermissionDeniedError("m"), 403),
        (ModelNotFoundError("m", param="model"), 404),
        (BodyTooLargeError("m"), 413),
        (OutOfBlocksError("m"), 500),
        (NodeError("m"), 500),
        (HeadwayError("m"), 500),
        (EngineDeadError("m"), 503),
    ],
)
def test_each_error_has_a_status_and_the_envelope(error: HeadwayError, status: int) -> None:
    sent, body = error_response(error)
    assert sent == status == error_status(error)
    detail = json.loads(body)["error"]
    assert set(detail) == {"message", "type", "param", "code"}
    assert isinstance(detail["code"], str)


def test_the_field_is_named() -> None:
    detail = json.loads(client_error_body(InvalidRequestError("m", param="n", code="c")))["error"]
    expected = {"message": "m", "type": "invalid_request_error", "param": "n", "code": "c"}
    assert detail == expected


def test_what_is_absent_is_null() -> None:
    detail = json.loads(error_body("m", "server_error"))["error"]
    assert (detail["param"], detail["code"]) == (None, None)
