"""Is this body JSON of the right shape, and if not, which field is wrong?

Of duplicate keys in one object the last wins, as most JSON readers have it (RFC 8259 leaves it
open). A byte order mark is skipped. NaN, Infinity, numbers beyond the range of a double, lone
surrogates, invalid UTF-8 and bottomless nesting are errors of the caller.
"""

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any, TypeVar

import msgspec

from headway.errors import InvalidRequestError
from headway.wire.json_size import check_weight
from headway.wire.requests import UNSUPPORTED

_BOM = b"\xef\xbb\xbf"
_MAX_MESSAGE_CHARS = 400
_MAX_SAID_CHARS = 1000
_MAX_NAME_CHARS = 80

# What msgspec says: "Expected `float`, got `str` - at `$.temperature`", and of a mapping's key
# "... - at `key` in `$.logit_bias`".
_AT = re.compile(r"(?P<what>.*) - at (?:`key` in )?`\$(?P<path>[^`]*)`$", re.DOTALL)
_NAMED = re.compile(r"Object (?P<how>contains unknown|missing required) field `(?P<name>.*?)`")

T = TypeVar("T")


def decode_request(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Decode `body`. Raises InvalidRequestError, with the field's path as `param`, and no other."""
    check_weight(body)
    if body.startswith(_BOM):
        body = body[len(_BOM) :]
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except msgspec.DecodeError as error:
        raise _explain_bad_json(body, str(error)) from None
    except (UnicodeError, ValueError) as error:
        text = f"The body is not valid JSON: {type(error).__name__}"
        raise InvalidRequestError(text, code="invalid_json") from None
    except RecursionError:
        text = "The body is nested too deeply"
        raise InvalidRequestError(text, code="invalid_json") from None


def _explain_bad_json(body: bytes, said: str) -> InvalidRequestError:
    """Name the field whose value a laxer reader would take: NaN, 1e999, a lone surrogate."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return InvalidRequestError(f"The body is not valid JSON: {said}", code="invalid_json")
    for name, value in fields.items() if isinstance(fields, dict) else ():
        for part in _flat(value):
            if isinstance(part, float) and not isfinite(part):
                text = f"{_clip_name(name)} is not a finite number"
                return InvalidRequestError(text, param=_clip_name(name), code="invalid_value")
            if isinstance(part, str) and _holds_half_a_pair(part):
                text = f"{_clip_name(name)} holds half a surrogate pair, which is no character"
                return InvalidRequestError(text, param=_clip_name(name), code="invalid_value")
    return InvalidRequestError(f"The body is not valid JSON: {said}", code="invalid_json")


def _holds_half_a_pair(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _flat(value: Any) -> Iterator[Any]:
    """Yield all scalars and keys in a JSON value, without recursion."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            pending += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            pending += part
        else:
            yield part


def _clip_name(name: str) -> str:
    return name.encode("ascii", "replace").decode("ascii")[:_MAX_NAME_CHARS]


def _explain(said: str) -> InvalidRequestError:
    """Put msgspec's complaint into OpenAI's shape."""
    if len(said) > 2 * _MAX_SAID_CHARS:
        # The middle is the caller's: the megabytes of a field's name.
        said = said[:_MAX_SAID_CHARS] + said[-_MAX_SAID_CHARS:]
    match = _AT.match(said)
    what, path = (match["what"], match["path"]) if match else (said, "")
    # Elements of a mapping come as `[...]`: their keys are the caller's text, the field is enough.
    param = path.removeprefix(".").replace("[...]", "")
    named = _NAMED.match(what)
    if named is not None:
        name = named["name"][:_MAX_NAME_CHARS]
        return _missing_or_unknown(named["how"], f"{param}.{name}" if param else name)
    if not param:
        return InvalidRequestError(f"The body: {_clip(what)}", code="invalid_type")
    if _is_unsupported(param):
        text = f"{param} is not supported by this server with this value: {_clip(what)}"
        return InvalidRequestError(text, param=param, code="unsupported_parameter")
    code = "invalid_type" if "`, got `" in what else "invalid_value"
    return InvalidRequestError(f"{param}: {_clip(what)}", param=param, code=code)


def _missing_or_unknown(how: str, param: str) -> InvalidRequestError:
    if how == "missing required":
        text = f"Missing required parameter: {param}"
        return InvalidRequestError(text, param=param, code="missing_required_parameter")
    text = f"Unknown parameter: {param}"
    return InvalidRequestError(text, param=param, code="unknown_parameter")


def _is_unsupported(param: str) -> bool:
    """Whether any part of the path is a field that only takes values without effect."""
    names = (part.partition("[")[0] for part in param.split("."))
    return any(name in UNSUPPORTED for name in names)


def _clip(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else text[:_MAX_MESSAGE_CHARS] + "..."
