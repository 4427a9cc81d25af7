"""When does the next step begin, and how long did each one take?

vLLM tells only when it asks for a step and when it returns one. With asynchronous scheduling it
asks for the next while one is under way; they still run one after the other.
"""

from collections import deque
from dataclasses import dataclass

from headway.core.predictor import StepFeatures


@dataclass(frozen=True, slots=True)
class StepUnderWay:
    """A step that vLLM was given. Times are seconds of the caller's clock."""

    token: object
    """What it is recognised by."""
    features: StepFeatures
    asked_at: float
    predicted_s: float


class StepClock:
    """The steps under way, in order."""

    def __init__(self) -> None:
        self._under_way: deque[StepUnderWay] = deque()
        self._last_end = 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether a step that vLLM was given has not come back."""
        return len(self._under_way) > 0

    def begin(self, step: StepUnderWay) -> None:
        """Note a step that vLLM is given."""
        self._under_way.append(step)

    def next_begin(self, now: float) -> float:
        """Return when a step that is planned now begins: when those under way should be done."""
        end = self._last_end
        for step in self._under_way:
            end = max(end, step.asked_at) + step.predicted_s
        return max(now, end)

    def end(self, token: object, now: float) -> tuple[StepUnderWay, float] | None:
        """Return the step that is done and the seconds it took; None: it is not known.

        Those before it that never came back are forgotten.
        """
        if not any(step.token is token for step in self._under_way):
            return None
        while (step := self._under_way.popleft()).token is not token:
            pass
        began = max(step.asked_at, self._last_end)
        self._last_end = now
        return step, now - began
