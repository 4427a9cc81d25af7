"""How are texts turned into token ids and back over HTTP? (vLLM's `/tokenize`, `/detokenize`)"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from headway.errors import InvalidRequestError
from headway.wire.chat import MAX_MESSAGES, ChatMessage, TemplateKwargs
from headway.wire.decode import decode_request
from headway.wire.requests import TokenId


class TokenizeRequest(
    Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, frozen=True
):
    """`POST /tokenize`: either a text or a conversation."""

    model: Annotated[str, Meta(max_length=512)] | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)] | None = (
        None
    )
    add_special_tokens: bool | None = None
    """Default: true for a text, false for a conversation, whose template holds them."""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    return_token_strs: bool | None = None


class TokenizeResponse(Struct, frozen=True):
    """The token ids of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(
    Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, frozen=True
):
    """`POST /detokenize`."""

    model: Annotated[str, Meta(max_length=512)] | None = None
    tokens: list[TokenId]


class DetokenizeResponse(Struct, frozen=True):
    """The text of token ids; the name is vLLM's."""

    prompt: str


_TOKENIZE = msgspec.json.Decoder(TokenizeRequest)
_DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)


def decode_tokenize(body: bytes) -> TokenizeRequest:
    """Decode and check a body. Raises InvalidRequestError naming the field."""
    request = decode_request(body, _TOKENIZE)
    if (request.prompt is None) == (request.messages is None):
        text = "Give either prompt or messages"
        raise InvalidRequestError(text, param="prompt", code="missing_required_parameter")
    return request


def decode_detokenize(body: bytes) -> DetokenizeRequest:
    """Decode and check a body. Raises InvalidRequestError naming the field."""
    return decode_request(body, _DETOKENIZE)
