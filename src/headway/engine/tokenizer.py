"""How does text become tokens, and how do tokens become text?

`Tokenizer` is the seam; `ModelTokenizer` reads a real model's files, `ByteTokenizer`
(`byte_tokenizer.py`) needs none. They differ only in how they encode.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headway.engine.chat_template import ChatTemplate
from headway.engine.detokenizer import Detokenizer
from headway.engine.gguf_header import read_header
from headway.engine.gguf_tokenizer import read_gguf_tokenizer
from headway.engine.hf_tokenizer import read_hf_tokenizer
from headway.engine.model_source import ModelFormat, ModelSource
from headway.engine.text_size import max_bytes_per_token
from headway.engine.token_table import TokenTable, read_token_table
from headway.engine.tokenizer_parts import TokenizerParts
from headway.errors import InvalidRequestError, ModelLoadError


class Tokenizer(ABC):
    """What the engine and its server know about a model's text. Safe to use from any thread.

    `eos_token_ids` end an answer. `max_token_bytes` is the most bytes of text that one token stands
    for, `sys.maxsize` when nothing bounds it.
    """

    def __init__(
        self,
        table: TokenTable,
        chat: ChatTemplate,
        *,
        eos_token_ids: frozenset[int],
        bos_token_id: int | None,
        max_token_bytes: int,
    ) -> None:
        self._table = table
        self._chat = chat
        self.eos_token_ids = eos_token_ids
        self.bos_token_id = bos_token_id
        self.max_token_bytes = max_token_bytes
        self.vocab_size = len(table.token_bytes)
        """One more than the highest token id that stands for something."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text, in which special tokens may be written out.

        `add_special_tokens`: also those that the model wants around a text, such as BOS; a rendered
        chat has them already. Other threads run meanwhile. Raises InvalidRequestError, param
        `prompt`, for half a surrogate pair, which is not text.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            reason = "the prompt holds half of a surrogate pair, which is not text"
            raise InvalidRequestError(reason, param="prompt") from None
        return self._encode(text, add_special_tokens)

    @abstractmethod
    def _encode(self, text: str, add_special_tokens: bool) -> list[int]: ...

    def decode(
        self,
        token_ids: Iterable[int],
        *,
        skip_special_tokens: bool = True,
        continuation: bool = False,
    ) -> str:
        """Return the text of tokens; bytes that are not UTF-8 become U+FFFD, unknown ids nothing.

        `continuation`: the tokens go on from others, so that a space before them is kept.
        """
        return self._table.text(
            token_ids, skip_special_tokens=skip_special_tokens, continuation=continuation
        )

    def detokenizer(self, *, skip_special_tokens: bool, continuation: bool = False) -> Detokenizer:
        """Return a fresh state whose joined answers equal `decode` of all tokens."""
        return Detokenizer(
            self._table, skip_special_tokens=skip_special_tokens, continuation=continuation
        )

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token; empty for an unknown id."""
        return self._table.bytes_of(token_id)

    def token_text(self, token_id: int) -> str:
        """Return one token as text, special ones included; half a character is U+FFFD."""
        return self._table.bytes_of(token_id).decode("utf-8", "replace")

    def hopeless(self, text_bytes: int, max_model_len: int) -> bool:
        """Tell whether a prompt of this size surely has more than `max_model_len` tokens."""
        return text_bytes > max_model_len * self.max_token_bytes

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """Return the prompt of a chat, to be encoded without `add_special_tokens`.

        `kwargs` are variables of the template (tools, documents, ...). Raises InvalidRequestError,
        param `messages`, when there is no template or it refuses.
        """
        return self._chat.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=kwargs,
        )


class ModelTokenizer(Tokenizer):
    """The tokenizer of a model, from its files."""

    def __init__(self, parts: TokenizerParts) -> None:
        """Raise ModelLoadError for a decoder or a chat template that cannot be used."""
        super().__init__(
            read_token_table(parts.tokenizer),
            ChatTemplate(parts.chat_templates, parts.special_tokens),
            eos_token_ids=parts.eos_token_ids,
            bos_token_id=parts.bos_token_id,
            max_token_bytes=max_bytes_per_token(parts.tokenizer),
        )
        self._tokenizer = parts.tokenizer

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        # Of the library's ways to encode, only those for batches release the interpreter lock.
        [encoding] = self._tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        return encoding.ids


def load_tokenizer(source: ModelSource) -> Tokenizer:
    """Read a model's tokenizer. Raises ModelLoadError, naming what is wrong."""
    if source.format is ModelFormat.HF:
        return ModelTokenizer(read_hf_tokenizer(source.path))
    metadata = read_header(source.path).metadata
    try:
        return ModelTokenizer(read_gguf_tokenizer(metadata))
    except ModelLoadError as error:
        raise ModelLoadError(f"{source.path}: {error}") from error
