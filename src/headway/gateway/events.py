"""What of a node's answer does the client get?

Each event says the tier that was used. Usage is always asked of the node, for our own books, and
passed on only when the client asked: then exactly one chunk without choices carries it, right
before `[DONE]`; no other chunk does, unless the client asked for vLLM's continuous counts. When
the node tells nothing, one event with content counts as one token, and the figures are an estimate.
"""

from dataclasses import dataclass

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from headway.gateway.node_client import NodeFailedError, NodeInternalError
from headway.wire.usage import usage_of


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What an answer took; `estimated` when no node told."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: bool


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: Raw | None = None

    @property
    def gained(self) -> bool:
        return bool(self.content or self.reasoning_content or self.tool_calls)


class _Choice(Struct):
    finish_reason: str | None = None
    delta: _Delta | None = None
    text: str | None = None

    @property
    def gained(self) -> bool:
        return bool(self.text) if self.delta is None else self.delta.gained


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    """Usage as any node may send it."""

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Message(Struct):
    """The parts of an event, or of a whole answer, that matter here."""

    choices: list[_Choice] | UnsetType = UNSET
    usage: _Usage | UnsetType | None = UNSET
    service_tier: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _NodeError(Struct):
    message: str = "the node reported an error"


_DECODER = msgspec.json.Decoder(_Message)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_IDENTITY = ("id", "object", "created", "model", "system_fingerprint")


class Translator:
    """One answer: takes the node's events, returns the client's, and counts.

    `num_prompt_tokens` is our estimate, used when the node does not tell.
    """

    def __init__(
        self,
        service_tier: str,
        *,
        num_prompt_tokens: int,
        num_choices: int = 1,
        include_usage: bool = False,
        continuous_usage: bool = False,
    ) -> None:
        self._service_tier = msgspec.json.encode(service_tier)
        self._prefix = b'{"service_tier":' + self._service_tier + b","
        self._num_prompt_tokens = num_prompt_tokens
        self._num_choices = num_choices
        self._include_usage = include_usage
        self._continuous_usage = continuous_usage
        self._usage: _Usage | None = None
        self._usage_chunk: bytes | None = None
        self._last = b"{}"
        self._finished_choices = 0
        self.num_events = 0
        """Events with content so far: about as many tokens."""

    @property
    def answered(self) -> bool:
        """Whether every choice has come to its end."""
        return self._finished_choices >= self._num_choices

    @property
    def counts(self) -> TokenCounts:
        """The tokens so far, as the node tells them or as counted here."""
        return _counts(self._usage, self._num_prompt_tokens, self.num_events)

    def event(self, data: bytes) -> bytes | None:
        """Return what the client gets for one event, or None for nothing.

        Raises NodeFailedError for an error event, broken JSON or something that is not a chunk.
        """
        message = _decode(data)
        if message.choices is UNSET:
            raise NodeFailedError("an event that is not a chunk")
        if message.usage:
            self._usage = message.usage
        if not message.choices:
            self._usage_chunk = data if message.usage else self._usage_chunk
            return None
        for choice in message.choices:
            self.num_events += choice.gained
            self._finished_choices += choice.finish_reason is not None
        self._last = data
        if message.service_tier is UNSET and message.usage is UNSET:
            return self._prefix + data[data.index(b"{") + 1 :]
        fields = _FIELDS.decode(data)
        if not (self._continuous_usage and message.usage):
            fields.pop("usage", None)
        return self._encode(fields)

    def last_event(self) -> bytes | None:
        """Return the usage chunk if the client asked for one; call it when the stream is over."""
        if not self._include_usage:
            return None
        if self._usage_chunk is not None:
            return self._encode(_FIELDS.decode(self._usage_chunk))
        last = _FIELDS.decode(self._last)
        fields = {name: last[name] for name in _IDENTITY if name in last}
        fields["choices"] = Raw(b"[]")
        fields["usage"] = _usage_field(self.counts)
        return self._encode(fields)

    def whole(self, data: bytes) -> bytes:
        """Return what the client gets for an answer that is not streamed.

        Raises NodeFailedError when it is an error or not an answer.
        """
        message = _decode(data)
        if not message.choices:
            raise NodeFailedError("an answer without choices")
        self._finished_choices = len(message.choices)
        self.num_events = len(message.choices)
        self._usage = message.usage or None
        fields = _FIELDS.decode(data)
        if self._usage is None:
            # Roughly four letters to a token, in the absence of anything better.
            self.num_events = max(1, len(fields["choices"]) // 4)
            fields["usage"] = _usage_field(self.counts)
        return self._encode(fields)

    def _encode(self, fields: dict[str, Raw]) -> bytes:
        fields["service_tier"] = Raw(self._service_tier)
        return msgspec.json.encode(fields)


def _decode(data: bytes) -> _Message:
    try:
        message = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NodeFailedError(f"the node sent broken JSON: {error}") from None
    if message.error is not UNSET and message.choices is UNSET:
        raise NodeInternalError(_error_text(message.error))
    return message


def _error_text(error: Raw) -> str:
    try:
        return msgspec.json.decode(error, type=_NodeError).message
    except msgspec.DecodeError:
        return _NodeError().message


def _counts(usage: _Usage | None, num_prompt_tokens: int, num_events: int) -> TokenCounts:
    if usage is None:
        return TokenCounts(num_prompt_tokens, num_events, 0, estimated=True)
    details = usage.prompt_tokens_details
    cached = None if details is None else details.cached_tokens
    return TokenCounts(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=0 if usage.completion_tokens is None else usage.completion_tokens,
        cached_tokens=0 if cached is None else cached,
        estimated=False,
    )


def _usage_field(counts: TokenCounts) -> Raw:
    usage = usage_of(counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens)
    return Raw(msgspec.json.encode(usage))
