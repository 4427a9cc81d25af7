"""What does the fake node say to one completion, and in which way does it misbehave?"""

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Literal

import msgspec

CREATED = 1_700_000_000
DEFAULT_TOKENS = tuple(f"tok{index} " for index in range(16))


@dataclass(kw_only=True)
class Behaviour:
    """How a node answers. Times are in seconds.

    Counts are of tokens; one more than there are means after the end of every choice, before the
    usage.
    """

    tokens: tuple[str, ...] = DEFAULT_TOKENS
    tokens_per_s: float | None = None
    """Speed after the first token; None: as fast as it can."""
    first_token_s: float = 0.0
    status: int = 200
    """Any other status is answered with an error instead of tokens."""
    retry_after: str | None = None
    error_message: str = "the fake node was told to fail"
    gate: asyncio.Event | None = None
    """Nothing is sent before this event, or, from `gate_after` tokens on, no more."""
    gate_after: int | None = None
    die_after: int | None = None
    """Cut the connection after that many tokens; 0 cuts after the head; -1 before the head."""
    reset: bool = False
    """Cut with a reset instead of an orderly close."""
    malformed_after: int | None = None
    """Send a broken JSON text after that many tokens."""
    error_after: int | None = None
    """Send an error event after that many tokens."""
    done: bool = True
    usage: Literal["final", "never", "every"] = "final"
    split: int | None = None
    """Write streams in pieces of that many bytes; None: event by event."""
    newline: str = "\n"
    comments: bool = False
    last_blank_line: bool = True
    service_tier: str | None = None
    """A service_tier that the node itself claims in its answers."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came in."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> list[str]:
        """Return every value that came under `name`."""
        return [value for key, value in self.headers if key == name]

    def json(self) -> Any:
        """Return the decoded body."""
        return msgspec.json.decode(self.body)


class FakeCompletion:
    """One answer, streamed or whole."""

    def __init__(self, request: Received, behaviour: Behaviour, out: "ResponseWriter") -> None:
        self._behaviour = behaviour
        self._out = out
        self._fields: dict[str, Any] = request.json()
        self._is_chat = request.path.endswith("/chat/completions")
        ids = request.header("x-request-id")
        prefix = "chatcmpl-" if self._is_chat else "cmpl-"
        self._id = prefix + (ids[0] if ids else "fake")
        limit = self._fields.get("max_completion_tokens") or self._fields.get("max_tokens")
        tokens = behaviour.tokens
        self._tokens = tokens if limit is None else tokens[:limit]
        self._finish = "stop" if len(self._tokens) == len(tokens) else "length"
        self._n: int = self._fields.get("n") or 1
        options = self._fields.get("stream_options") or {}
        self._wants_usage: bool = options.get("include_usage") is True

    async def run(self) -> None:
        """Answer as ordered."""
        behaviour = self._behaviour
        if behaviour.gate is not None and behaviour.gate_after is None:
            await behaviour.gate.wait()
        if behaviour.first_token_s:
            await asyncio.sleep(behaviour.first_token_s)
        if behaviour.die_after == -1:
            self._out.cut(reset=behaviour.reset)
        if behaviour.status != 200:
            await self._fail()
        elif self._fields.get("stream"):
            await self._stream()
        else:
            await self._whole()

    async def _fail(self) -> None:
        behaviour = self._behaviour
        error = {
            "message": behaviour.error_message,
            "type": "Bad Request",
            "code": behaviour.status,
        }
        body = msgspec.json.encode({"error": error})
        extra = [] if behaviour.retry_after is None else [("retry-after", behaviour.retry_after)]
        await self._out.whole(behaviour.status, body, extra=extra)

    async def _stream(self) -> None:
        behaviour = self._behaviour
        await self._out.start(200, "text/event-stream")
        async for event in self._events():
            frame = f"data: {event}\n\n"
            if behaviour.comments:
                frame = ": keep-alive\n\n" + frame
            if event == "[DONE]" and not behaviour.last_blank_line:
                frame = frame[:-2]
            await self._out.piece(frame.replace("\n", behaviour.newline).encode(), behaviour.split)
        await self._out.end()

    async def _events(self) -> AsyncIterator[str]:
        behaviour = self._behaviour
        for position in range(len(self._tokens) + 1):
            if (broken := await self._before(position)) is not None:
                yield broken
            for event in self._choices_at(position):
                yield event
            if behaviour.tokens_per_s is not None and position < len(self._tokens):
                await asyncio.sleep(1 / behaviour.tokens_per_s)
        if (broken := await self._before(len(self._tokens) + 1)) is not None:
            yield broken
        if behaviour.usage == "final" and self._wants_usage:
            yield _text({**self._head(chunk=True), "choices": [], "usage": self._usage()})
        if behaviour.done:
            yield "[DONE]"

    def _choices_at(self, position: int) -> Iterator[str]:
        """Yield the events of every choice after `position` tokens: the role, a token, the end."""
        choices = range(self._n)
        if position == 0 and self._is_chat:
            role = {"role": "assistant", "content": ""}
            yield from (self._chunk(index, role, None, 0) for index in choices)
        if position < len(self._tokens):
            said = {"content": self._tokens[position]}
            yield from (self._chunk(index, said, None, position + 1) for index in choices)
        else:
            yield from (self._chunk(index, {}, self._finish, position) for index in choices)

    async def _before(self, position: int) -> str | None:
        """Do what is ordered for the moment after `position` tokens."""
        behaviour = self._behaviour
        if position == behaviour.gate_after and behaviour.gate is not None:
            await behaviour.gate.wait()
        if position == behaviour.die_after:
            self._out.cut(reset=behaviour.reset)
        if position == behaviour.error_after:
            return _text({"error": {"message": behaviour.error_message, "type": "x", "code": 500}})
        return '{"id": "broken' if position == behaviour.malformed_after else None

    async def _whole(self) -> None:
        behaviour = self._behaviour
        text = "".join(self._tokens)
        choices: list[dict[str, Any]] = []
        for index in range(self._n):
            said = (
                {"message": {"role": "assistant", "content": text}}
                if self._is_chat
                else {"text": text}
            )
            choices.append(
                {"index": index, **said, "finish_reason": self._finish, "logprobs": None}
            )
        answer = {**self._head(chunk=False), "choices": choices}
        if behaviour.usage != "never":
            answer["usage"] = self._usage()
        body = msgspec.json.encode(answer)
        if behaviour.malformed_after is not None:
            body = body[: len(body) // 2]
        if behaviour.die_after is not None:
            await self._out.partial(200, body, len(body) // 2)
            self._out.cut(reset=behaviour.reset)
        await self._out.whole(200, body)

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self._is_chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        head = {"id": self._id, "object": kind, "created": CREATED, "model": self._fields["model"]}
        if self._behaviour.service_tier is not None:
            head["service_tier"] = self._behaviour.service_tier
        return head

    def _chunk(self, index: int, delta: dict[str, str], finish: str | None, count: int) -> str:
        said = {"delta": delta} if self._is_chat else {"text": delta.get("content", "")}
        choice = {"index": index, **said, "logprobs": None, "finish_reason": finish}
        event = {**self._head(chunk=True), "choices": [choice]}
        if self._behaviour.usage == "every":
            event["usage"] = self._usage(count)
        return _text(event)

    def _usage(self, count: int | None = None) -> dict[str, Any]:
        completion = self._n * (len(self._tokens) if count is None else count)
        prompt = len(msgspec.json.encode(self._fields.get("messages") or self._fields["prompt"]))
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        }


class ResponseWriter:
    """HTTP/1.1 responses, byte by byte if ordered."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def whole(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        extra: list[tuple[str, str]] | None = None,
    ) -> None:
        """Send a response with its length."""
        fields = [("content-type", content_type), ("content-length", str(len(body)))]
        self._writer.write(_head(status, [*fields, *(extra or [])]) + body)
        await self._writer.drain()

    async def partial(self, status: int, body: bytes, size: int) -> None:
        """Promise all of `body`, send only its first `size` bytes."""
        fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
        self._writer.write(_head(status, fields) + body[:size])
        await self._writer.drain()

    async def start(self, status: int, content_type: str) -> None:
        """Send the head of a chunked response."""
        fields = [("content-type", content_type), ("transfer-encoding", "chunked")]
        self._writer.write(_head(status, fields))
        await self._writer.drain()

    async def piece(self, data: bytes, split: int | None) -> None:
        """Send `data`, in pieces of `split` bytes that the reader sees one by one."""
        for part in _cut(data, split):
            self._writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await self._writer.drain()
            if split is not None:
                await asyncio.sleep(0)

    async def end(self) -> None:
        """End a chunked response."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def cut(self, *, reset: bool) -> None:
        """Die: close the connection in the middle. Raises ConnectionAbortedError always."""
        if reset:
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()
        self._writer.close()
        raise ConnectionAbortedError("the fake node was told to die")


def _head(status: int, headers: list[tuple[str, str]]) -> bytes:
    lines = [f"HTTP/1.1 {status} Fake", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def _cut(data: bytes, split: int | None) -> Iterator[bytes]:
    if split is None:
        yield data
        return
    for start in range(0, len(data), split):
        yield data[start : start + split]


def _text(event: dict[str, Any]) -> str:
    return msgspec.json.encode(event).decode()
