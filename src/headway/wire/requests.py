"""Which fields do the chat and the completion request share, and what may they hold?

Names and ranges are OpenAI's, then vLLM's sampling extras. `null` means the same as leaving a field
out. A field of either API that cannot be honoured is listed with the only values that change
nothing, so that any other is refused by name instead of being ignored. Ranges stand in the types:
the decoder enforces them and the OpenAPI document shows them.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from headway.errors import InvalidRequestError

MAX_CHOICES = 128
MAX_STOPS = 16
MAX_STOP_CHARS = 4096

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TokenCount = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Label = Annotated[str, Meta(max_length=512)]
"""A caller's own text that changes nothing here: a user name, a cache key."""
StopText = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Nothing = Annotated[list[Any], Meta(max_length=0)]
"""A list that may only be empty."""

UNSUPPORTED = frozenset(
    {
        "allowed_token_ids",
        "audio",
        "bad_words",
        "chat_template",
        "documents",
        "echo",
        "function_call",
        "functions",
        "length_penalty",
        "modalities",
        "prediction",
        "prompt_logprobs",
        "reasoning_effort",
        "response_format",
        "structured_outputs",
        "suffix",
        "tool_calls",
        "tool_choice",
        "tools",
        "truncate_prompt_tokens",
        "use_beam_search",
        "verbosity",
        "web_search_options",
    }
)
"""Fields of OpenAI or vLLM of which only the values without effect are accepted."""


class StreamOptions(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """What a stream carries besides text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: the usage so far on every chunk, when `include_usage` is set too."""
    include_obfuscation: Literal[False] | None = None


class GenerationRequest(
    Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, frozen=True
):
    """The fields that both generation endpoints take."""

    model: Annotated[str, Meta(min_length=1, max_length=512)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: (
        Annotated[
            dict[
                Annotated[str, Meta(pattern="^[0-9]{1,10}$")],
                Annotated[float, Meta(ge=-100, le=100)],
            ],
            Meta(max_length=1024),
        ]
        | None
    ) = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=MAX_STOPS)] | None = None
    service_tier: Annotated[str, Meta(max_length=64)] | None = None
    user: Label | None = None

    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    """0 or -1: all tokens."""
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=128)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    """vLLM's: lower is sooner."""
    cache_salt: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    vllm_xargs: (
        Annotated[
            dict[
                Annotated[str, Meta(max_length=64)],
                Annotated[str, Meta(max_length=512)] | int | float,
            ],
            Meta(max_length=32),
        ]
        | None
    ) = None

    allowed_token_ids: Nothing | None = None
    bad_words: Nothing | None = None
    length_penalty: Annotated[float, Meta(ge=1, le=1)] | None = None
    prompt_logprobs: None = None
    spaces_between_special_tokens: Literal[True] | None = None
    structured_outputs: None = None
    truncate_prompt_tokens: None = None
    use_beam_search: Literal[False] | None = None

    @property
    def streams(self) -> bool:
        """Whether the answer comes as server-sent events."""
        return self.stream is True

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage is True

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk carries the usage so far."""
        options = self.stream_options
        return self.include_usage and options is not None and options.continuous_usage_stats is True

    @property
    def num_choices_per_prompt(self) -> int:
        """The `n` of the request."""
        return 1 if self.n is None else self.n

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop texts, in one shape."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


def check_shared(request: GenerationRequest, max_tokens: int | None) -> None:
    """Check what no single field's type can say. Raises InvalidRequestError naming the field.

    `max_tokens` is the request's limit under whichever name it came.
    """
    if request.stream_options is not None and not request.streams:
        text = "stream_options is only allowed when stream is true"
        raise InvalidRequestError(text, param="stream_options")
    if max_tokens is None or request.min_tokens is None:
        return
    if request.min_tokens > max_tokens:
        text = f"min_tokens must not be above max_tokens, {max_tokens}"
        raise InvalidRequestError(text, param="min_tokens")
