"""What can be answered to "does anything leave now"?

Nobody polls: an answer is a value, and one of them says when to ask again.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send this request now."""

    request_id: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing leaves before `at`, when a request expires: call `expired` then.

    Ask again earlier on an arrival, a finish or a change of credits.
    """

    at: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing leaves before an arrival, a finish or a change of credits."""


Decision = Dispatch | WaitUntil | Idle
