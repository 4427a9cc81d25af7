"""Is this body a valid chat completion request, and if not, which field is wrong?"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from headway.errors import InvalidRequestError
from headway.wire.decode import decode_request
from headway.wire.requests import (
    GenerationRequest,
    Label,
    Nothing,
    TokenCount,
    check_shared,
)

MAX_TOP_LOGPROBS = 20
MAX_MESSAGES = 2048

TemplateKwargs = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Any],
    Meta(max_length=32),
]
"""Variables of the chat template."""


class TextPart(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A piece of a message. Text is the only kind that the models here read."""

    type: Literal["text"]
    text: str


class ChatMessage(
    Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, frozen=True
):
    """One message. The fields that only repeat an earlier answer may be there when empty."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[TextPart], Meta(min_length=1)] | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    tool_call_id: Annotated[str, Meta(max_length=256)] | None = None
    tool_calls: Nothing | None = None
    function_call: None = None
    refusal: None = None
    audio: None = None
    annotations: Nothing | None = None

    @property
    def text(self) -> str:
        """The content, parts joined by a line break as vLLM joins them."""
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content)


class ResponseFormat(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Only plain text is offered."""

    type: Literal["text"]


class ChatCompletionRequest(
    GenerationRequest,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    frozen=True,
):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: TemplateKwargs | None = None

    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    store: bool | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Label | None = None
    parallel_tool_calls: bool | None = None

    audio: None = None
    chat_template: None = None
    documents: Nothing | None = None
    function_call: Literal["none", "auto"] | None = None
    functions: Nothing | None = None
    modalities: Annotated[list[Literal["text"]], Meta(max_length=1)] | None = None
    prediction: None = None
    reasoning_effort: Literal["none"] | None = None
    response_format: ResponseFormat | None = None
    tool_choice: Literal["none", "auto"] | None = None
    tools: Nothing | None = None
    verbosity: Literal["medium"] | None = None
    web_search_options: None = None

    @property
    def max_output_tokens(self) -> int | None:
        """The limit under either of its two names; None: up to the model's context."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def num_logprobs(self) -> int | None:
        """None: no log-probabilities; k: the drawn token's and those of the k most probable."""
        if self.logprobs is not True:
            return None
        return 0 if self.top_logprobs is None else self.top_logprobs

    @property
    def num_choices(self) -> int:
        """How many answers this request asks for."""
        return self.num_choices_per_prompt


_DECODER = msgspec.json.Decoder(ChatCompletionRequest)


def decode_chat(body: bytes) -> ChatCompletionRequest:
    """Decode and check a body. Raises InvalidRequestError naming the field."""
    request = decode_request(body, _DECODER)
    check_shared(request, request.max_output_tokens)
    _check_messages(request.messages)
    _check_limits(request)
    if request.top_logprobs is not None and request.logprobs is not True:
        text = "top_logprobs is only allowed when logprobs is true"
        raise InvalidRequestError(text, param="top_logprobs")
    if request.continue_final_message is True and request.add_generation_prompt is True:
        text = "continue_final_message cannot be true when add_generation_prompt is true"
        raise InvalidRequestError(text, param="continue_final_message")
    return request


def _check_messages(messages: list[ChatMessage]) -> None:
    for index, message in enumerate(messages):
        if message.content is None:
            at = f"messages[{index}].content"
            raise InvalidRequestError(f"{at} must be a string or a list of text parts", param=at)


def _check_limits(request: ChatCompletionRequest) -> None:
    old, new = request.max_tokens, request.max_completion_tokens
    if old is not None and new is not None and old != new:
        text = "max_tokens and max_completion_tokens contradict each other; give one"
        raise InvalidRequestError(text, param="max_completion_tokens")
