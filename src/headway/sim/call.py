"""What is known of one request from its client's side?"""

from dataclasses import dataclass

from headway.core.outcome import Outcome


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """What a client sends, and what became of it. Times are virtual seconds."""

    request_id: str
    source: int
    """Position of the stream in the scenario."""
    rank: int
    tenant: str
    weight: float
    arrival: float
    num_prompt_tokens: int
    num_output_tokens: int
    max_tokens: int
    deadline: float | None = None
    cancel_at: float | None = None
    prefix_id: str = ""
    num_prefix_tokens: int = 0
    caller: int = -1
    """Which of a closed loop's callers waits for it; -1: nobody's turn depends on it."""

    account: int = -1
    """Number of its tenant within its tier, in the records."""
    served_rank: int = -1
    """The tier in which it got its place; promoted work is served above its own. -1: nobody gives
    places."""
    node: int = -1
    """Where it is now; -1: nowhere yet, or not any longer."""
    started: bool = False
    """Whether it got a token where it is now."""
    sent_at: float | None = None
    """When it first left the gateway's queue."""
    in_line_since: float = 0.0
    """When it would have come to wait as long as it has, had it never been at a node."""
    left_line_at: float = 0.0
    first_at: float | None = None
    last_at: float = 0.0
    max_gap_s: float = 0.0
    num_tokens: int = 0
    """Tokens that its client has got."""
    num_attempts: int = 0
    lost_at: tuple[int, ...] = ()
    """The nodes that died before it had a token there."""
    num_preemptions: int = 0
    predicted_p90_s: float | None = None
    """Wait that it was told on arrival; None: nothing was known, or it had not to wait."""
    outcome: Outcome | None = None
    ended_at: float = 0.0
    retry_after_s: float = 0.0

    @property
    def rank_at_node(self) -> int:
        """The tier that its node serves it in; where nothing is promoted, its own."""
        return self.rank if self.served_rank < 0 else self.served_rank
