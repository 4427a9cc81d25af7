"""What text has so many tokens and is like no other?"""

from random import Random

# Short common words: one token each, with the space before it, in most vocabularies.
_WORDS = """
about after again air all also another any are around ask away back because been before best
better big book both boy build call came can car change city close cold come could country day did
different do does done door down each early earth eat end enough even every eye face family far
feel few find fire first fish follow food for form found four friend from game gave get girl give
go good great green group grow had half hand hard have head hear help here high hold home horse
hot house how idea keep kind king know land large last late learn left letter life light like line
list little live long look made make man many mark may mean men might mile money moon more morning
most mother mountain move much music must name near need never new next night north
"""
WORDS = tuple(_WORDS.split())


class PromptSource:
    """Draws texts that share no beginning, so that no prefix cache helps."""

    def __init__(self, random: Random, *, tokens_per_word: float = 1.0) -> None:
        self._random = random
        self.tokens_per_word = tokens_per_word
        """Measured on the server's own tokenizer; see `headway.bench.client.calibrate`."""

    def words(self, num_words: int) -> str:
        """Return so many random words."""
        return " ".join(self._random.choices(WORDS, k=num_words))

    def text(self, num_tokens: int) -> str:
        """Return a text of about `num_tokens` tokens."""
        return self.words(max(1, round(num_tokens / self.tokens_per_word)))
