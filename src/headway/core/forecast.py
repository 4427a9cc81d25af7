"""What does the queue as it stands mean for one request: how long will it wait, will it be late?"""

from collections.abc import Sequence

from headway.core.backlog import QueuedRequest
from headway.core.calibration import NO_WAIT, WaitEstimator
from headway.core.drain import DrainRate
from headway.core.promotion import Plan
from headway.core.wait import Model, WaitEstimate, model_wait
from headway.core.waiting import Waiting

Told = tuple[Model | None, WaitEstimate | None, bool]
"""From what, None if from nothing, and how long a request would wait, None if unknown; whether
others of its flow do."""


class Forecaster(WaitEstimator):
    """Estimates for the requests of one dispatcher, from its queue and what became of others."""

    def __init__(self, waiting: Waiting, num_ranks: int) -> None:
        self.free: Sequence[int] = (1,) * num_ranks
        """The credits seen last, by rank."""
        super().__init__(num_ranks)
        self._waiting = waiting
        self.drain = DrainRate()

    def wait(self, entry: QueuedRequest, now: float) -> Told:
        """Return how long `entry` would wait if it arrived now."""
        index = self._waiting.index(entry)
        if self.free[index] > 0 and not any(self._waiting.backlogged[: index + 1]):
            return None, NO_WAIT, False
        own = self._waiting.lanes[index].cost_ahead(entry)
        model = self._model(index, own, now)
        behind = own > 0
        wait = None if model is None else self.estimate(entry.rank, model, behind=behind)
        return model, wait, behind

    def laxity_s(self, entry: QueuedRequest, plan: Plan, now: float) -> float:
        """Return the time that a waiting request will have to spare at its deadline: the median."""
        index = self._waiting.index(entry)
        lane = self._waiting.lanes[index]
        # What was cancelled was not served, and is not ahead all the same.
        others = max(0.0, lane.backlog.cost - entry.cost)
        model = self._model(index, min(plan.cost_left(lane.served), others), now)
        wait_s = 0.0
        if model is not None:
            wait_s = self.estimate(entry.rank, model, behind=plan.ahead > 0).p50_s
        return plan.deadline - now - wait_s - self.drain.service_s(entry.cost)

    def joined(self, entry: QueuedRequest, told: Told, now: float) -> None:
        """Note that `entry` joins the queue, and what it was told: what `wait` returned."""
        if len(self._waiting) == 0:
            self.drain.filled(now)
        model, wait, behind = told
        if model is not None and wait is not None:
            self.tell(entry.request_id, entry.rank, model, wait.p90_s, now, behind=behind)
        self.arrived(entry.rank, entry.cost, now)

    def moved(self, entry: QueuedRequest, rank: int, now: float) -> None:
        """Note that `entry` left its tier for that of `rank`; what it was told is void."""
        self.left(entry.request_id, now)
        self.arrived(rank, entry.cost, now)

    def settled(self, cost: float, service_s: float, now: float, *, known: bool) -> None:
        """Note that a request of `cost` ended, `service_s` after its dispatch."""
        saturated = len(self._waiting) > 0
        self.drain.settle(cost, service_s, now, saturated=saturated, known=known)

    def _model(self, index: int, own: float, now: float) -> Model | None:
        waiting = self._waiting
        return model_wait(
            self.drain,
            own=own,
            above=waiting.cost_above(index),
            arrivals_above=self.arrivals_above(index, now),
            floor=waiting.lanes[index].tier.floor,
            floors_below=waiting.floors_below(index),
        )

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        super().check_integrity()
        assert all(told in self._waiting for told in self._told), "an estimate is left over"
