"""How does text become a prompt without holding up the event loop?

A size check refuses hopeless text before it is tokenized. Short text is tokenized at once, which
takes less time than handing it over; long text, and a conversation of much else, goes to a thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headway.engine.tokenizer import Tokenizer
from headway.errors import InvalidRequestError
from headway.wire.chat import ChatMessage
from headway.wire.offload import Offload

NUM_WORKERS = 2
"""So that one long prompt does not keep the next one waiting."""
INLINE_BYTES = 4096
_RESERVED_KWARGS = frozenset({"add_generation_prompt", "continue_final_message", "messages"})


class PromptReader:
    """Turns texts and conversations into token ids. Owns the worker threads."""

    def __init__(self, tokenizer: Tokenizer, max_num_tokens: int) -> None:
        """`max_num_tokens`: longest prompt and answer together that the engine can hold."""
        self._tokenizer = tokenizer
        self._max_num_tokens = max_num_tokens
        self._workers = Offload(
            "headway-tokenize", inline_up_to=INLINE_BYTES, num_threads=NUM_WORKERS
        )

    def close(self) -> None:
        """Let the threads end. What still waits in line is dropped."""
        self._workers.close()

    async def text(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises InvalidRequestError, param `prompt`."""
        return await self._workers.run(
            len(text), lambda: self._encode(text, "prompt", add_special_tokens=add_special_tokens)
        )

    async def chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool | None,
        continue_final_message: bool | None,
        add_special_tokens: bool | None,
        kwargs: Mapping[str, Any] | None,
        num_bytes: int,
    ) -> list[int]:
        """Return the token ids of a conversation, None being the default of each setting.

        `num_bytes` is the size of the request, by which rendering it takes its time. Raises
        InvalidRequestError naming the field when the template refuses.
        """
        given = _checked_kwargs(kwargs)
        goes_on = continue_final_message is True
        opens = not goes_on if add_generation_prompt is None else add_generation_prompt

        def render() -> list[int]:
            # A template may leave something out, but hardly the most of so much.
            self._refuse_hopeless(sum(_num_bytes(message.text) for message in messages), "messages")
            plain = msgspec.to_builtins(messages)
            text = self._tokenizer.render_chat(
                plain, add_generation_prompt=opens, continue_final_message=goes_on, **given
            )
            # The template holds the special tokens that the model wants around a text.
            special = add_special_tokens is True
            return self._encode(text, "messages", add_special_tokens=special)

        return await self._workers.run(num_bytes, render)

    def _encode(self, text: str, param: str, *, add_special_tokens: bool) -> list[int]:
        self._refuse_hopeless(_num_bytes(text), param)
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _refuse_hopeless(self, num_bytes: int, param: str) -> None:
        if self._tokenizer.hopeless(num_bytes, self._max_num_tokens):
            raise InvalidRequestError(
                f"The prompt of {num_bytes} bytes surely has more than {self._max_num_tokens} "
                "tokens, the most that fit",
                param=param,
                code="context_length_exceeded",
            )


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _checked_kwargs(kwargs: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if kwargs is None:
        return {}
    for name in sorted(_RESERVED_KWARGS & kwargs.keys()):
        param = f"chat_template_kwargs.{name}"
        text = f"{param} is set by the request's own field of this name"
        raise InvalidRequestError(text, param=param)
    return kwargs
