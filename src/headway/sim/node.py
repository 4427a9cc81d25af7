"""What does a simulated node do between two steps?"""

from collections.abc import Sequence
from typing import NamedTuple

from headway.sim.cost_model import CostModel, StepNoise
from headway.sim.scheduler import Emission, Repeated, Repeats, SimRequest, SimStep, StepScheduler


class Running(NamedTuple):
    """A step under way."""

    step: SimStep
    ends_at: float
    took_s: float
    number: int
    """Of the node's steps; a node that died has none of the earlier ones left."""


class SimNode:
    """One engine: its scheduler, and a clock that the cost model drives."""

    def __init__(self, index: int, model: CostModel, noise: StepNoise, error: float) -> None:
        self.index = index
        self.slow_factor = 1.0
        self.scheduler: StepScheduler | None = None
        """None while the node is down."""
        self._repeats: Repeats | None = None
        self.running: Running | None = None
        self.num_steps = 0
        self._model = model
        self._noise = noise
        self._error = error

    @property
    def is_idle(self) -> bool:
        """Whether no step is under way."""
        return self.running is None

    def add(self, request: SimRequest, now: float) -> None:
        """Take a request; it is looked at when the step under way is over."""
        assert self.scheduler is not None, f"node {self.index} is down"
        self.scheduler.add(request, now)

    def begin(self, now: float) -> Running | None:
        """Begin the next step, if there is one to do."""
        assert self.running is None, f"node {self.index} is busy"
        step = None if self.scheduler is None else self.scheduler.plan(now)
        if step is None:
            return None
        took_s = self._model.time_s(step.features) * self._noise.next() * self.slow_factor
        self.num_steps += 1
        self.running = Running(step, now + took_s, took_s, self.num_steps)
        return self.running

    def end(self, now: float) -> Sequence[Emission]:
        """End the step under way; return its tokens. The engine's own clock may be wrong."""
        running, self.running = self.running, None
        assert running is not None, f"node {self.index} is idle"
        assert self.scheduler is not None, f"node {self.index} is down"
        return self.scheduler.done(running.step, now, running.took_s * self._error)

    def start(self, scheduler: StepScheduler) -> None:
        """Run with this scheduler, and nothing to do."""
        self.scheduler = scheduler
        self._repeats = scheduler if isinstance(scheduler, Repeats) else None

    def catch_up(self) -> None:
        """Bring the scheduler's books up to date; then `take_repeated` tells what is new."""
        if self._repeats is not None:
            self._repeats.catch_up()

    def take_repeated(self) -> Repeated | None:
        """Return, once, what steps brought that the scheduler booked together."""
        return None if self._repeats is None else self._repeats.take_repeated()

    def die(self) -> None:
        """Lose everything."""
        self.scheduler = self._repeats = self.running = None
