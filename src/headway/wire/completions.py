"""Is this body a valid completion request, and if not, which field is wrong?"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from headway.errors import InvalidRequestError
from headway.wire.decode import decode_request
from headway.wire.requests import MAX_CHOICES, GenerationRequest, TokenId, check_shared

MAX_LOGPROBS = 20
MAX_PROMPTS = 64
DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


class CompletionRequest(
    GenerationRequest,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    frozen=True,
):
    """`POST /v1/completions`."""

    prompt: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[
            list[
                Annotated[str, Meta(min_length=1)]
                | TokenId
                | Annotated[list[TokenId], Meta(min_length=1)]
            ],
            Meta(min_length=1),
        ]
    )
    """A text, a list of texts, token ids, or a list of token id lists; never a mixture."""
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None

    echo: Literal[False] | None = None
    suffix: None = None

    @property
    def max_output_tokens(self) -> int:
        """The limit on generated tokens of each choice."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, one entry each, as texts or as token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [[item for item in self.prompt if isinstance(item, int)]]
        return [item for item in self.prompt if not isinstance(item, int)]

    @property
    def num_logprobs(self) -> int | None:
        """None: no log-probabilities; k: the drawn token's and those of the k most probable."""
        return self.logprobs

    @property
    def num_choices(self) -> int:
        """How many answers this request asks for, over all its prompts."""
        return len(self.prompts) * self.num_choices_per_prompt


_DECODER = msgspec.json.Decoder(CompletionRequest)


def decode_completion(body: bytes) -> CompletionRequest:
    """Decode and check a body. Raises InvalidRequestError naming the field."""
    request = decode_request(body, _DECODER)
    check_shared(request, request.max_output_tokens)
    _check_prompt(request.prompt)
    if request.best_of is not None and request.best_of != request.num_choices_per_prompt:
        raise InvalidRequestError("best_of must equal n", param="best_of")
    prompts = len(request.prompts)
    if prompts > MAX_PROMPTS:
        text = f"at most {MAX_PROMPTS} prompts in one request, got {prompts}"
        raise InvalidRequestError(text, param="prompt")
    if request.num_choices > MAX_CHOICES:
        text = f"prompts times n must not be above {MAX_CHOICES}, got {request.num_choices}"
        raise InvalidRequestError(text, param="n")
    return request


def _check_prompt(prompt: str | list[str | int | list[int]]) -> None:
    if isinstance(prompt, str):
        return
    kind = type(prompt[0])
    for index, item in enumerate(prompt):
        if type(item) is not kind:
            at = f"prompt[{index}]"
            text = "prompt must hold only texts, only token ids, or only lists of token ids"
            raise InvalidRequestError(f"{at}: {text}", param=at, code="invalid_type")
