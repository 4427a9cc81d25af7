"""What did one request see?"""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request, filled in while it runs. Times are seconds since its phase began."""

    tier: str
    sent_s: float
    chunk_s: list[float] = field(default_factory=list)
    """When each piece of the answer arrived."""
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    """Both as the server counted them; 0 until its usage has come."""
    finished: bool = False
    error: str | None = None
    waited_s: float | None = None
    """How long it was waited for when it was given up before its first token."""

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; for one given up, the wait, which is a lower bound; else None."""
        return self.chunk_s[0] - self.sent_s if self.chunk_s else self.waited_s

    @property
    def tokens_per_chunk(self) -> float:
        """Tokens in each piece, as far as known: a piece is one token until the usage tells."""
        return self.num_output_tokens / len(self.chunk_s) if self.num_output_tokens else 1.0
