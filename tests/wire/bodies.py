"""Request bodies with one field as told."""

Row = tuple[str, str, str | None, str | None]

CHAT_FIELDS = {"model": '"m"', "messages": '[{"role": "user", "content": "hi"}]'}
COMPLETION_FIELDS = {"model": '"m"', "prompt": '"hi"'}


def body_with(fields: dict[str, str], **changed: str) -> bytes:
    """Return a JSON object of `fields`, some of them changed or added; values are JSON text."""
    merged = {**fields, **changed}
    return ("{" + ", ".join(f'"{key}": {value}' for key, value in merged.items()) + "}").encode()


def chat_body(**changed: str) -> bytes:
    """Return a chat request."""
    return body_with(CHAT_FIELDS, **changed)


def completion_body(**changed: str) -> bytes:
    """Return a completion request."""
    return body_with(COMPLETION_FIELDS, **changed)


def name_of(row: Row) -> str:
    """Return a short test id."""
    return f"{row[0]}={row[1][:30]}"
