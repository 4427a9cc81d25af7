"""What stands for the tokens of a request whose text nobody knows?"""


class CountedTokens(bytearray):
    """A byte for each token, because only the number matters; appending is as cheap as a list's.

    `prefix` names the first `num_prefix_tokens` of them; nothing else stands for the same tokens.
    """

    __slots__ = ("key", "num_prefix_tokens", "prefix")

    def __init__(self, count: int, prefix: str = "", num_prefix_tokens: int = 0) -> None:
        super().__init__(count)
        self.prefix = prefix
        self.num_prefix_tokens = min(num_prefix_tokens, count) if prefix else 0
        self.key = object()
        """What a cache knows these very tokens by."""
