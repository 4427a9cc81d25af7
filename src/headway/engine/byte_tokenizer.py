"""How does text become tokens where there is no model?

Each byte of UTF-8 is a token; one more ends the text. With `FakeRunner` it makes a whole engine
that needs no files.
"""

from headway.engine.chat_template import DEFAULT_TEMPLATE, ChatTemplate
from headway.engine.token_table import TokenTable
from headway.engine.tokenizer import Tokenizer

EOS_TOKEN_ID = 256
_EOS_TEXT = "<eos>"
_CHAT = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class ByteTokenizer(Tokenizer):
    """256 byte tokens and an end of text, which is never read out of a text."""

    def __init__(self) -> None:
        each_byte = (bytes([byte]) for byte in range(256))
        super().__init__(
            TokenTable((*each_byte, _EOS_TEXT.encode()), frozenset([EOS_TOKEN_ID])),
            ChatTemplate({DEFAULT_TEMPLATE: _CHAT}, {"eos_token": _EOS_TEXT}),
            eos_token_ids=frozenset([EOS_TOKEN_ID]),
            bos_token_id=None,
            max_token_bytes=1,
        )

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(text.encode())
