"""What does a chat template get to see of the caller's messages?

Templates of text models read `content` as one string and tool arguments as an object, while OpenAI
clients may send a list of parts and a JSON string. Text parts are joined with a line break, as vLLM
does. Roles are the template's business, as long as they are plain words.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import InvalidRequestError

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PART_SEPARATOR = "\n"


def refuse(reason: str) -> InvalidRequestError:
    """Return the error for messages that cannot be made into a prompt."""
    return InvalidRequestError(reason, param="messages")


def prepare_messages(
    messages: Sequence[Mapping[str, Any]], *, as_parts: bool, developer_role: bool
) -> list[dict[str, Any]]:
    """Return fresh messages for a template; the caller's are left as they are.

    `as_parts`: the template wants `content` as a list of text parts instead of a string.
    `developer_role`: the template knows that role; else it becomes `system`, which it replaced.
    Raises InvalidRequestError (param `messages`) for anything that is not text.
    """
    if not messages:
        raise refuse("messages must not be empty")
    return [
        _prepare(message, f"messages[{index}]", as_parts, developer_role)
        for index, message in enumerate(messages)
    ]


def _prepare(message: object, name: str, as_parts: bool, developer_role: bool) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise refuse(f"{name} must be an object")
    prepared = dict(message)
    role = prepared.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise refuse(f"{name}.role must be a word such as system, user, assistant or tool")
    if role == "developer" and not developer_role:
        prepared["role"] = "system"
    text = _text(prepared, name)
    prepared["content"] = [{"type": "text", "text": text}] if as_parts else text
    if prepared.get("tool_calls") is not None:
        prepared["tool_calls"] = _tool_calls(prepared["tool_calls"], f"{name}.tool_calls")
    return prepared


def _text(message: Mapping[str, Any], name: str) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None and message["role"] == "assistant" and message.get("tool_calls"):
        return ""
    if not isinstance(content, list):
        raise refuse(f"{name}.content must be a string or a list of text parts")
    return _PART_SEPARATOR.join(
        _part_text(part, f"{name}.content[{index}]") for index, part in enumerate(content)
    )


def _part_text(part: object, name: str) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text":
        text = part.get("text")
        if isinstance(text, str):
            return text
    raise refuse(f'{name} must be {{"type": "text", "text": "..."}}; this model reads only text')


def _tool_calls(calls: object, name: str) -> list[Any]:
    if not isinstance(calls, list):
        raise refuse(f"{name} must be a list")
    return [_tool_call(call, f"{name}[{index}]") for index, call in enumerate(calls)]


def _tool_call(call: object, name: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise refuse(f"{name} must be an object with a function")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return dict(call)
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        raise refuse(f"{name}.function.arguments is not valid JSON") from None
    return {**call, "function": {**function, "arguments": parsed}}
