"""How much may be in flight at one node?

Grow slowly, back off fast, on what a node does with the tokens it is asked for, never on how long
whole requests take: those are as long as their answers. What is not told is neither good nor bad.
"""

from collections import deque
from statistics import fmean, median_low

from headway.core.trend import RecentMean, Trend
from headway.core.window import WindowSignals

FIRST_LIMIT = 8
"""Requests in flight at a node that does not tell how many it runs: most engines run more, so its
own queue, which no tier can overtake, stays empty."""
MOST_SLOTS = 4096
"""Ceiling of such a node."""
FLOOR = 2
"""A node that is worth using at all has room for somebody urgent beside one other."""
IN_USE = 0.8
"""A limit of which less is used is not what keeps the node from more."""
LEAST_KEPT, MOST_KEPT = 0.7, 0.95
"""A window that went wrong costs between 5 % and 30 % of the limit; a failure costs half."""
HOLD_FAILED, HOLD_OVERLOADED = 3, 2
"""Windows without growth afterwards."""
PLAIN = 1.5
"""Above this multiple of a target two windows in a row are enough, or the only one since the last
fall; below, it takes the mean."""
FEW, DOUBT, DOUBT_LATELY = 8, 0.25, 1.2
"""How many windows make a mean, and by how much it has to be beyond the target, divided by their
number: the more were seen, the surer it is. That of all since the last change of the limit; or that
of the last `FEW`, none counted as more than `PLAIN`: these are others each time: it takes more."""
ROOMY, SLOWEST_PACE = 0.8, 30
"""From this share of its target on, a signal slows growth down, to one step in so many windows."""
KV_FULL, KV_ROOMY = 0.9, 0.85
STRETCH = 2.0
"""A node that is slow even when nearly idle is held to this multiple of what it takes then."""
LEAST_GAIN, GOOD_GAIN = 0.1, 0.3
"""A plateau: 10 % more in flight bring less than 1 % more throughput; below 3 %, growth is slow."""
PLATEAU_PACE = 5


class NodeLimiter:
    """The limit of one node; `observe` moves it, once per window.

    `slots`: what the node runs at once, as configured or reported; the limit starts there and never
    exceeds it. None: not told. `keeps_latency`: the node plans its steps by tier itself, so only
    failures and memory bound what it gets.
    """

    def __init__(self, slots: int | None = None, *, keeps_latency: bool = False) -> None:
        self.limit = FIRST_LIMIT if slots is None else max(1, slots)
        self.ceiling = MOST_SLOTS if slots is None else self.limit
        self._told_slots = slots is not None
        self._keeps_latency = keeps_latency
        self._hold = 0
        self._since_change = 0
        self._too_much: int | None = None
        """Where the limit was when the node last had too much, until that is passed again."""
        self._told: frozenset[str] = frozenset()
        self._unloaded_itls: deque[float] = deque(maxlen=FEW)
        self._itls = RecentMean(), RecentMean()
        """Of the windows that did not use the limit, and of those that did: how little in flight
        goes says nothing about much."""
        self._latest: deque[float] = deque(maxlen=FEW)
        self._num_plain = 0
        """How many windows in a row were plainly too slow."""
        self._trend = Trend()

    @property
    def floor(self) -> int:
        """The least limit."""
        return min(FLOOR, self.ceiling)

    def set_slots(self, slots: int, *, keeps_latency: bool) -> None:
        """The node tells what it runs at once. A limit that was only the ceiling, or a guess, moves
        along; one that was learnt stays."""
        if not self._told_slots or self.limit == self.ceiling:
            self.limit = max(1, slots)
        self.ceiling = max(1, slots)
        self.limit = min(self.limit, self.ceiling)
        self._told_slots, self._keeps_latency = True, keeps_latency

    def observe(self, window: WindowSignals) -> int:
        """Learn from a window that is over; return the new limit.

        It falls by at most half, and rises by at most one or 2 %, whichever is more, and only when
        at least `IN_USE` of it was used.
        """
        self._learn(window)
        self._since_change += 1
        kept = self._kept(window)
        if window.failed:
            self._back_off(self.limit // 2, HOLD_FAILED)
        elif kept is not None:
            # What was in flight was too much; a limit that it has not come down to yet is not.
            self._too_much = self.limit
            self._back_off(int(kept * max(window.max_inflight, self.limit)), HOLD_OVERLOADED)
        elif self._hold > 0:
            self._hold -= 1
        elif self._is_steady(window):
            self._drift(window)
        if self._too_much is not None and self.limit > self._too_much:
            self._too_much = None
        return self.limit

    def _back_off(self, limit: int, hold: int) -> None:
        least = max(self.floor, (self.limit + 1) // 2)
        self.limit = min(self.limit, max(least, limit))
        self._since_change, self._hold = 0, hold
        self._latest.clear()
        for itl in self._itls:
            itl.forget()
        if hold > 0:
            self._trend.forget()  # how it went with too much says nothing about less

    def _drift(self, window: WindowSignals) -> None:
        gain = None if self._keeps_latency else self._trend.most_gain
        if gain is not None and gain < LEAST_GAIN and self._since_change >= PLATEAU_PACE:
            self._back_off(int(MOST_KEPT * self.limit), 0)
        elif self._has_room(window) and self._since_change >= self._pace(window, gain):
            self.limit = min(self.ceiling, self.limit + max(1, self.limit // 50))
            self._since_change = 0
            self._itls[True].fade(FEW)

    def _is_steady(self, window: WindowSignals) -> bool:
        """Whether the limit was what bounded the node, and in-flight had come down to it."""
        return self._is_used(window) and window.max_inflight <= max(
            1.1 * self.limit, self.limit + 1
        )

    def _is_used(self, window: WindowSignals) -> bool:
        return window.max_inflight >= IN_USE * self.limit

    def _learn(self, window: WindowSignals) -> None:
        if window.itl_s is not None and window.max_inflight <= FLOOR:
            # Only where hardly less can be in flight: learnt under load, it would drift upward.
            self._unloaded_itls.append(window.itl_s)
        closeness = self._itl_closeness(window)
        if closeness is not None:
            used = self._is_used(window)
            self._itls[not used].fade(FEW)
            if self._itls[used].mean < ROOMY:
                self._itls[used].fade(FEW // 2)  # so far below, single windows do no harm
            self._itls[used].add(closeness)
            self._num_plain = self._num_plain + 1 if closeness > PLAIN else 0
            self._latest.append(min(closeness, PLAIN))
        if self._is_steady(window):
            self._trend.add(window.max_inflight, window.throughput)
        self._told |= window.told

    def _kept(self, window: WindowSignals) -> float | None:
        """Return the share of what was in flight that suits the node; None: all of it does."""
        shares: list[float] = []
        if window.num_preemptions and window.kv_used is not None and window.kv_used > KV_FULL:
            shares.append(MOST_KEPT)
        itl = self._itls[self._is_used(window)]
        if self._num_plain >= min(2, sum(each.num_seen for each in self._itls)):
            closeness = self._itl_closeness(window)
        else:
            lasting = itl.mean - DOUBT / itl.num_seen if itl.num_seen >= FEW else 0.0
            lately = fmean(self._latest) if len(self._latest) == FEW else 0.0
            closeness = max(lasting, lately - DOUBT_LATELY / FEW)
        if closeness is not None and closeness > 1:
            shares.append(1 / closeness)
        queue = None if self._keeps_latency else window.queue_closeness
        if queue is not None and queue > 1:
            shares.append(1 - window.num_waiting_inside / max(1, window.max_inflight))
        return min(MOST_KEPT, max(LEAST_KEPT, min(shares))) if shares else None

    def _has_room(self, window: WindowSignals) -> bool:
        if self.limit >= self.ceiling or self._told - window.told:
            return False  # without what it used to tell, growing would be blind
        return window.kv_used is None or window.kv_used < KV_ROOMY

    def _pace(self, window: WindowSignals, gain: float | None) -> float:
        """Return how many windows apart two steps up are: the nearer to too much, the more."""
        if self._keeps_latency:
            return 1
        itl = self._itls[True]
        signals = (itl.mean if itl.num_seen else None, window.queue_closeness)
        told = [signal for signal in signals if signal is not None]
        if not told:
            return float("inf")
        near = self._too_much is not None and self.limit >= MOST_KEPT * self._too_much
        if near or (gain is not None and gain < GOOD_GAIN):
            return SLOWEST_PACE
        closeness = min(1.0, max(0.0, max(told) - ROOMY) / (1 - ROOMY))
        return 1 + (SLOWEST_PACE - 1) * closeness**2

    def _itl_closeness(self, window: WindowSignals) -> float | None:
        """Return the gaps between tokens as a share of what was promised; above 1 is too slow."""
        if self._keeps_latency or window.itl_s is None or window.itl_target_s is None:
            return None
        unloaded_s = median_low(self._unloaded_itls) if self._unloaded_itls else 0.0
        return window.itl_s / max(window.itl_target_s, STRETCH * unloaded_s)
