"""Which text does the next token add?

Joined, the answers equal the decoding of all tokens at once. Bytes wait until they are a whole
character, or until it is certain that they never will be. Nothing of the prompt is ever known
here, so nothing of it can be shown.
"""

import codecs

from headway.engine.token_table import TokenTable


class Detokenizer:
    """The text of one growing sequence of tokens, in constant time for each.

    Bytes that are not UTF-8 become one U+FFFD for each maximal invalid run, in their place; a
    character cut off at the end becomes one on `finish()`. `continuation`: the tokens go on from
    others, so that a leading space (which SentencePiece puts before each text) is kept.
    """

    def __init__(
        self, table: TokenTable, *, skip_special_tokens: bool, continuation: bool = False
    ) -> None:
        self._table = table
        self._skipped = table.special if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._leading_spaces = 0 if continuation else table.leading_spaces

    def push(self, token_id: int) -> str:
        """Return the characters that this token makes certain; ids without text add none."""
        if token_id in self._skipped:
            return ""
        return self._unpad(self._decoder.decode(self._table.bytes_of(token_id)))

    def finish(self) -> str:
        """Return what is left at the end: one U+FFFD if a character was cut off."""
        return self._unpad(self._decoder.decode(b"", final=True))

    def _unpad(self, text: str) -> str:
        """Take the tokenizer's own spaces off the beginning of the whole text."""
        while text and self._leading_spaces:
            if text[0] == " ":
                text = text[1:]
                self._leading_spaces -= 1
            else:
                self._leading_spaces = 0
        return text
