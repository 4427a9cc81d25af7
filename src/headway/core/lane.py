"""What waits in one tier, and in which order does it leave?

Brings together what is decided about one tier: bounds (`backlog.py`), tenant (`fairness.py`) and
request (`ordering.py`). First come, first served is one lane whose requests are all of one tenant
and equally urgent, so that arrival decides.
"""

from dataclasses import dataclass, replace

from headway.core.admission import Admit, Shed, admit, cost_ahead, predict_wait_s
from headway.core.backlog import Backlog, QueuedRequest
from headway.core.fairness import FairQueue
from headway.core.ordering import order_key
from headway.core.tier import Tier, Tiers


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was dispatched and has not ended."""

    entry: QueuedRequest
    paid: float
    """How much of its tier's claim to a floor the dispatch paid off."""


class Lane:
    """One tier's requests, waiting and sent. `single_flow`: tenants and urgency mean nothing."""

    def __init__(self, tier: Tier, *, single_flow: bool = False) -> None:
        self.tier = tier
        self._single_flow = single_flow
        self._queue = FairQueue()
        self._backlog = Backlog(tier.max_queued, tier.max_queued_tokens)
        self._entries: dict[str, QueuedRequest] = {}

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._entries)

    @property
    def queued_cost(self) -> float:
        """Predicted cost of all that waits."""
        return self._queue.queued_cost

    @property
    def queued_tokens(self) -> int:
        """Predicted tokens of all that waits."""
        return self._backlog.tokens

    def expires_at(self, entry: QueuedRequest) -> float | None:
        """Return when `entry` leaves the queue unserved: its deadline or the tier's time limit."""
        deadline, timeout_s = entry.deadline, self.tier.queue_timeout_s
        if timeout_s is None:
            return deadline
        limit = entry.arrival + timeout_s
        return limit if deadline is None else min(limit, deadline)

    def predicted_wait_s(
        self, entry: QueuedRequest, above_cost: float, rate: float | None
    ) -> float | None:
        """Return how long `entry` would wait, in seconds; None while `rate` (cost/s) is unknown."""
        ahead = cost_ahead(self._flow(entry), self._backlog, self._queue.queued_cost)
        return predict_wait_s(ahead, above_cost, self.tier.floor, rate)

    def admit(
        self, entry: QueuedRequest, now: float, above_cost: float, rate: float | None
    ) -> Admit | Shed:
        """Decide whether `entry` may join; changes nothing."""
        wait_s = self.predicted_wait_s(entry, above_cost, rate)
        return admit(self._flow(entry), self._backlog, wait_s, self.expires_at(entry), now)

    def join(self, entry: QueuedRequest) -> None:
        """Queue an admitted request."""
        flow = self._flow(entry)
        key = 0.0 if self._single_flow else self._key(entry)
        self._queue.push(
            entry.request_id, flow.tenant, weight=flow.weight, cost=entry.cost, key=key
        )
        self._backlog.add(flow)
        self._entries[entry.request_id] = entry

    def leave(self, request_id: str) -> None:
        """Take a request out of the queue, at no cost."""
        self._queue.remove(request_id)
        self._backlog.remove(request_id)
        del self._entries[request_id]

    def head(self) -> QueuedRequest | None:
        """Return the request that leaves next, or None."""
        request_id = self._queue.peek()
        return None if request_id is None else self._entries[request_id]

    def send(self) -> QueuedRequest:
        """Take out the request that leaves next; its prediction counts until `settle`.

        Raises LookupError when nothing waits.
        """
        request_id = self._queue.send()
        if request_id is None:
            raise LookupError(f"nothing waits in tier {self.tier.name}")
        self._backlog.remove(request_id)
        return self._entries.pop(request_id)

    def settle(self, entry: QueuedRequest, cost_actual: float) -> None:
        """Replace the prediction of a sent request by its actual cost."""
        flow = self._flow(entry)
        self._queue.settle(entry.request_id, flow.tenant, cost_actual, flow.weight)

    def _flow(self, entry: QueuedRequest) -> QueuedRequest:
        return replace(entry, tenant="", weight=1.0) if self._single_flow else entry

    def _key(self, entry: QueuedRequest) -> float:
        return order_key(
            entry.arrival,
            ttft_s=self.tier.target.ttft_s,
            deadline=entry.deadline,
            prompt_tokens=entry.prompt_tokens,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        assert len(self._queue) == len(self._backlog) == len(self._entries), "one is lost"
        self._queue.check_integrity()
        self._backlog.check_integrity()


def merged_tier(tiers: Tiers) -> Tier:
    """Return one tier as lenient as all together, for first come, first served."""
    timeouts = [tier.queue_timeout_s for tier in tiers.all if tier.queue_timeout_s is not None]
    return Tier(
        name="all",
        rank=0,
        queue_timeout_s=max(timeouts) if len(timeouts) == len(tiers) else None,
        max_queued=sum(tier.max_queued for tier in tiers.all),
        max_queued_tokens=sum(tier.max_queued_tokens for tier in tiers.all),
    )
