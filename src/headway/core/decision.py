"""What can be answered to "does anything leave now"?

Nobody polls: an answer is a value, and one of them says when to ask again.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Dispatch(NamedTuple):
    """Send this request now."""

    request_id: str
    promoted_to: int | None = None
    """The rank whose credit it takes, when it is not its own."""


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing leaves before `at`, when a request expires or may move up a tier.

    Call `expired` then, and ask again; earlier on an arrival, a finish or a change of credits.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing leaves before an arrival, a finish or a change of credits."""


Decision = Dispatch | WaitUntil | Idle
