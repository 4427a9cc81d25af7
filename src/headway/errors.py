"""What can go wrong, and whose fault is it?

HeadwayError
├── ConfigError              a setting is unknown, impossible or contradictory; start-up stops
├── ModelLoadError           a model file is damaged, truncated or of an unknown kind
├── ClientError              the caller's fault: a 4xx
│   ├── InvalidRequestError      400: a field is wrong; `param` names it
│   ├── AuthenticationError      401: no key, or not a known one
│   ├── PermissionDeniedError    403: known, but not entitled
│   ├── ModelNotFoundError       404
│   ├── BodyTooLargeError        413
│   └── EncodedBodyError         415
└── ServerError              ours: a 5xx
    ├── OutOfBlocksError         the KV pool cannot hold what was asked of it
    ├── EngineDeadError          the engine stopped and cannot serve
    └── NodeError                a node refused, hung, died or spoke nonsense
"""


class HeadwayError(Exception):
    """Base of every error that headway raises on purpose."""


class ConfigError(HeadwayError):
    """A setting is unknown, impossible or contradictory. `path` is the key, as `tiers[1].floor`."""

    def __init__(self, path: str, message: str) -> None:
        # Both, so that it can be pickled on its way from a process of a pool.
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        """Return the key and what is wrong with it."""
        return f"{self.path}: {self.message}"


class ModelLoadError(HeadwayError):
    """A model file is missing, damaged, truncated, or of an unknown family or tensor type."""


class ClientError(HeadwayError):
    """The caller's fault. Carries what the OpenAI error envelope needs."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = self.default_code if code is None else code


class InvalidRequestError(ClientError):
    """A field of the request is wrong; `param` names it."""


class AuthenticationError(ClientError):
    """No API key, or not a known one."""

    status = 401
    default_code = "invalid_api_key"


class PermissionDeniedError(ClientError):
    """The key is known but may not do this."""

    status = 403
    type = "permission_error"
    default_code = "tier_not_entitled"


class ModelNotFoundError(ClientError):
    """The model is not served here."""

    status = 404
    default_code = "model_not_found"


class RequestTimeoutError(ClientError):
    """The client stopped sending before the body was complete."""

    status = 408
    default_code = "request_timeout"


class BodyTooLargeError(ClientError):
    """The body is over the configured limit."""

    status = 413
    default_code = "request_too_large"


class EncodedBodyError(ClientError):
    """The body is compressed; a small one could unpack to any size."""

    status = 415
    default_code = "unsupported_content_encoding"


class ServerError(HeadwayError):
    """Our fault, or a node's."""


class OutOfBlocksError(ServerError):
    """The KV pool cannot hold what was asked of it. Nothing was taken."""


class EngineDeadError(ServerError):
    """The engine stopped and cannot serve any request."""


class NodeError(ServerError):
    """A node refused, hung, died or spoke nonsense."""
