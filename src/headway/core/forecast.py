"""What does the queue as it stands mean for one request: how long will it wait, will it be late?"""

from collections.abc import Sequence

from headway.core.backlog import QueuedRequest
from headway.core.calibration import WaitCounts, WaitEstimator
from headway.core.drain import DrainRate
from headway.core.promotion import Plan
from headway.core.wait import Ahead, Model, WaitEstimate, model_wait
from headway.core.waiting import Waiting


class Forecaster:
    """Estimates for the requests of one dispatcher, from its queue and what became of others."""

    def __init__(self, waiting: Waiting, num_ranks: int) -> None:
        self.free: Sequence[int] = (1,) * num_ranks
        """The credits seen last, by rank."""
        self._waiting = waiting
        self._drain = DrainRate()
        self._waits = WaitEstimator(num_ranks)

    def __len__(self) -> int:
        """Return how many estimates have not met their outcome."""
        return len(self._waits)

    @property
    def rate(self) -> float | None:
        """Measured cost per second under saturation; None while unknown."""
        return self._drain.rate

    @property
    def counts(self) -> WaitCounts:
        """How estimates compared with outcomes so far."""
        return self._waits.counts

    def wait(self, entry: QueuedRequest, now: float) -> tuple[Model | None, WaitEstimate | None]:
        """Return how long `entry` would wait if it arrived now, None if unknown, and from what."""
        model = () if self._leaves_at_once(entry) else self._model(entry, now)
        return model, self._waits.estimate(entry.rank, model)

    def laxity_s(self, entry: QueuedRequest, plan: Plan, now: float) -> float:
        """Return the time that a waiting request will have to spare at its deadline: the median."""
        left = plan.cost_left(self._waiting.lane(entry).served)
        wait = self._waits.estimate(entry.rank, self._model(entry, now, left))
        wait_s = 0.0 if wait is None else wait.p50_s
        return plan.deadline - now - wait_s - self._drain.service_s(entry.cost)

    def arrived(
        self, entry: QueuedRequest, told: tuple[Model | None, WaitEstimate | None], now: float
    ) -> None:
        """Note that `entry` joins the queue, and what it was told: what `wait` returned."""
        model, wait = told
        if wait is not None:
            self._waits.tell(entry.request_id, entry.rank, model, wait.p90_s, now)
        self._waits.arrived(entry.rank, entry.cost, now)

    def moved(self, entry: QueuedRequest, rank: int, now: float) -> None:
        """Note that `entry` left its tier for that of `rank`; what it was told is void."""
        self._waits.left(entry.request_id, now)
        self._waits.arrived(rank, entry.cost, now)

    def served(self, request_id: str, now: float) -> None:
        """Note that a request leaves for a node."""
        self._waits.served(request_id, now)

    def left(self, request_id: str, now: float) -> None:
        """Note that a request leaves unserved."""
        self._waits.left(request_id, now)

    def settled(self, cost: float, service_s: float, now: float) -> None:
        """Note that a request of `cost` ended, `service_s` after it left the queue."""
        self._drain.settle(cost, service_s, now, saturated=len(self._waiting) > 0)

    def _leaves_at_once(self, entry: QueuedRequest) -> bool:
        index = self._waiting.index(entry)
        if self.free[index] <= 0:
            return False
        return not any(lane.backlog.requests for lane in self._waiting.lanes[: index + 1])

    def _model(self, entry: QueuedRequest, now: float, own: float | None = None) -> Model | None:
        index = self._waiting.index(entry)
        lane = self._waiting.lanes[index]
        ahead = Ahead(
            own=lane.cost_ahead(entry) if own is None else own,
            above=self._waiting.cost_above(index),
            floor=lane.tier.floor,
            floors_below=self._waiting.floors_below(index),
            arrivals_above=self._waits.arrivals_above(index, now),
        )
        return model_wait(ahead, self._drain)
