"""What does this gateway see of a node, window by window?

Counts what goes through, and keeps what the node's own page said last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.window import WindowSignals, window_is_over

LEAST_GAPS = 20
"""Gaps of one tier from which their mean says something."""
FRESH_S = 6.0
"""How long what a node said of itself holds: three probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a node said of itself lately; None: not told."""

    queue_wait_p95_s: float | None = None
    """Of the requests that ended between the last two reports."""
    num_waiting: int | None = None
    kv_used: float | None = None
    num_preemptions: int | None = None
    """Since the report before."""


_NO_REPORT = NodeReport()


class NodeMeter:
    """One node's window under way. `itl_targets_s`: the tiers' targets by rank."""

    def __init__(self, itl_targets_s: Sequence[float | None]) -> None:
        self._targets = tuple(itl_targets_s)
        self._since: float | None = None
        self._report, self._reported_at = _NO_REPORT, 0.0
        self._waiting: int | None = None
        self._clear(0)

    def _clear(self, inflight: int) -> None:
        self.max_inflight = inflight
        self.tokens = self.completions = self._preemptions = 0
        self.failed = False
        self._num_gaps = [0] * len(self._targets)
        self._gaps_s = [0.0] * len(self._targets)

    def began(self, inflight: int) -> None:
        """One more was sent; so many are in flight now."""
        if inflight > self.max_inflight:
            self.max_inflight = inflight

    def tokens_came(self, rank: int, num_tokens: int, gap_s: float | None = None) -> None:
        """Count generated tokens; `gap_s` is the time since those before, None when unknown."""
        self.tokens += num_tokens
        if gap_s is not None:
            self._num_gaps[rank] += num_tokens
            self._gaps_s[rank] += gap_s

    def reported(self, report: NodeReport, now: float) -> None:
        """Take what the node says of itself.

        Of its queue only what two reports in a row show counts: a request that has just come in
        waits for the step under way everywhere.
        """
        waiting = (report.num_waiting, self._report.num_waiting)
        self._waiting = min((n for n in waiting if n is not None), default=None)
        self._report, self._reported_at = report, now
        self._preemptions += 0 if report.num_preemptions is None else report.num_preemptions

    def close(self, now: float, inflight: int) -> WindowSignals | None:
        """End the window and return it if enough was seen, and begin the next."""
        idle = not (inflight or self.tokens or self.completions or self.failed)
        if self._since is None or idle:
            self._since = now
            return None
        duration_s = now - self._since
        if not window_is_over(duration_s, self.completions, self.tokens, failed=self.failed):
            return None
        signals = self._signals(duration_s, now)
        self._since = now
        self._clear(inflight)
        return signals

    def _signals(self, duration_s: float, now: float) -> WindowSignals:
        report = self._report if now - self._reported_at <= FRESH_S else _NO_REPORT
        itl_s, target_s = self._itl()
        return WindowSignals(
            duration_s=duration_s,
            completions=self.completions,
            tokens=self.tokens,
            max_inflight=self.max_inflight,
            itl_s=itl_s,
            itl_target_s=target_s,
            queue_wait_p95_s=self._queue_wait_s(report, duration_s),
            kv_used=report.kv_used,
            num_preemptions=None if report.num_preemptions is None else self._preemptions,
            failed=self.failed,
        )

    def _itl(self) -> tuple[float | None, float | None]:
        """Return mean gap and target of the most urgent tier that has both.

        The mean, as the target is one. Single gaps are as long as a step with a full chunk of
        prefill in it, however few are in flight.
        """
        for target, number, total_s in zip(
            self._targets, self._num_gaps, self._gaps_s, strict=True
        ):
            if target is not None and number >= LEAST_GAPS:
                return total_s / number, target
        return None, None

    def _queue_wait_s(self, report: NodeReport, duration_s: float) -> float | None:
        """Return the wait inside the node: as it was measured, or as long as its queue lets expect.

        The measured one is of requests that have ended, so a queue shows in it only later.
        """
        waits = [] if report.queue_wait_p95_s is None else [report.queue_wait_p95_s]
        if report.num_waiting is not None and self._waiting is not None:
            waits.append(self._waiting * duration_s / max(1, self.completions))
        return max(waits, default=None)
