"""What time is it, and how do tests own it?"""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of monotonic seconds."""

    def now(self) -> float:
        """Return monotonic seconds; only differences mean anything."""


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds since an arbitrary start."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told, for scenarios and tests."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Return the seconds set so far."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward. Raises ValueError when `seconds` is negative."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds
