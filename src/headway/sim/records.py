"""What is written down while a simulation runs?

One row of numbers for each request that has ended, one for each second, and counts of the gaps
between tokens. Nothing is judged here.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from headway.core.outcome import Outcome
from headway.sim.call import Call
from headway.sim.node import Running, SimNode
from headway.sim.scenario import Scenario
from headway.sim.scheduler import SchedulerStats

GAP_UNIT_S = 1e-4
"""Gaps are counted in steps of this."""
OUTCOMES = tuple(Outcome)
DECODE_EXTRA = 1.0
"""What a decoded token costs beyond a prefilled one, at the prices of `core.cost`."""


class Rows:
    """Columns of numbers, one entry for each request, in the order of ends."""

    def __init__(self) -> None:
        self.rank = array("b")
        self.account = array("l")
        self.outcome = array("b")
        self.arrival = array("d")
        self.wait_s = array("d")
        """In the gateway's queue; -1: it never left it towards a node."""
        self.ttft_s = array("d")
        """-1: it never got a token."""
        self.tpot_s = array("d")
        """Mean gap; 0 for an answer of one token."""
        self.max_gap_s = array("d")
        self.ended_at = array("d")
        self.deadline = array("d")
        """Infinite: it had none."""
        self.prompt_tokens = array("l")
        self.output_tokens = array("l")
        self.num_preemptions = array("l")
        self.predicted_p90_s = array("d")
        """-1: nothing was predicted."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rank)


@dataclass(frozen=True, slots=True)
class Account:
    """One tenant within one tier."""

    rank: int
    tenant: str
    weight: float


@dataclass(slots=True)
class Second:
    """What one second brought. Lists are by rank."""

    service: list[float]
    """Cost of what was computed, at the prices of `core.cost`; promoted work is served in the tier
    in which it got its place, as at the gateway."""
    tokens: list[int]
    """Tokens that clients got."""
    computed: list[int]
    """Tokens that engines computed."""
    waiting: list[int]
    """Requests that wait at its end, at the gateway and in the engines."""
    running: list[int]
    limit: int | None = None
    """Requests that all nodes together took, at its end; None: nobody limited them."""
    kv_used: float = 0.0
    """Mean over the nodes that are up, at its end."""
    accounts: dict[int, float] = field(default_factory=dict)
    """Service by account: the prompt with the first token, then each token."""
    backlogged: frozenset[int] = frozenset()
    """Accounts of which something has waited for its first token all through it."""
    num_steps: int = 0


@dataclass(slots=True)
class StepTotals:
    """Sums over the steps that ended in the measured time, after the warm-up."""

    num_steps: int = 0
    took_s: float = 0.0
    tokens: int = 0
    token_budget: int = 0
    predicted_s: float = 0.0
    actual_of_predicted_s: float = 0.0
    budgeted_s: float = 0.0
    time_budget_s: float = 0.0
    num_budgeted: int = 0
    num_late: int = 0
    """Steps that took longer than their budget."""
    num_predicted: int = 0
    error_s: float = 0.0
    """Sum of the absolute errors of the predictions."""


class Recorder:
    """All that a report is made of."""

    def __init__(self, scenario: Scenario) -> None:
        self.num_ranks = len(scenario.tiers)
        self.warmup_s = scenario.warmup_s
        self.duration_s = scenario.duration_s
        self.rows = Rows()
        self.seconds: list[Second] = []
        self.gaps: list[Counter[int]] = [Counter() for _ in range(self.num_ranks)]
        """By rank: how many gaps of so many `GAP_UNIT_S` there were in the streams of requests that
        arrived in the measured time."""
        self.steps = StepTotals()
        self.busy_s = 0.0
        """Of the measured time, over all nodes: spent in steps, whenever those began and ended."""
        self.longest_step_s = 0.0
        self.engines: list[SchedulerStats] = []
        self.accounts: list[Account] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self.num_arrived = 0
        self.num_repeated = 0
        """Steps that were booked together with others."""
        self._open: Counter[int] = Counter()
        """Requests of each account that wait for their first token."""
        self._open_before: dict[int, int] = {}
        """Those of them that were open at the latest tick, too."""
        self._latest_tick = 0.0
        self._second = self._new_second()

    @property
    def num_ended(self) -> int:
        """How many requests have their outcome."""
        return len(self.rows)

    def _new_second(self) -> Second:
        zeros = [0] * self.num_ranks
        return Second(
            service=[0.0] * self.num_ranks,
            tokens=zeros.copy(),
            computed=zeros.copy(),
            waiting=zeros.copy(),
            running=zeros.copy(),
        )

    def _account(self, call: Call) -> int:
        key = (call.rank, call.tenant)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.accounts)
            self.accounts.append(Account(call.rank, call.tenant, call.weight))
        return number

    def arrived(self, call: Call) -> None:
        """A client has sent a request; it waits."""
        self.num_arrived += 1
        call.account = self._account(call)
        self._open[call.account] += 1

    def _waits_no_more(self, call: Call) -> None:
        account = call.account
        self._open[account] -= 1
        if self._open[account] == 0:
            del self._open[account]
        if call.arrival < self._latest_tick:
            self._open_before[account] -= 1

    def tokens(self, calls: Iterable[Call], now: float) -> None:
        """Each of these clients gets a token."""
        second, since, until = self._second, self.warmup_s, self.duration_s
        tokens, served, accounts = second.tokens, second.service, second.accounts
        for call in calls:
            rank, account = call.rank, call.account
            call.num_tokens += 1
            tokens[rank] += 1
            if call.first_at is None:
                call.first_at = now
                self._waits_no_more(call)
                service: float = call.num_prompt_tokens
            else:
                gap_s = now - call.last_at
                if gap_s > call.max_gap_s:
                    call.max_gap_s = gap_s
                if since <= call.arrival < until:
                    self.gaps[rank][int(gap_s / GAP_UNIT_S)] += 1
                service = 1.0 + DECODE_EXTRA
                served[call.rank_at_node] += DECODE_EXTRA
            call.last_at = now
            accounts[account] = accounts.get(account, 0.0) + service

    def repeated(self, calls: Sequence[Call], ends: Sequence[float]) -> None:
        """Each of these clients got one token, not its first, at each of `ends`.

        All of them are within the second that has begun, or at its end.
        """
        second, count = self._second, len(ends)
        self.num_repeated += count
        gaps_s = [later - sooner for sooner, later in pairwise(ends)]
        for call in calls:
            own_s = (ends[0] - call.last_at, *gaps_s)
            call.max_gap_s = max(call.max_gap_s, *own_s)
            if self.warmup_s <= call.arrival < self.duration_s:
                self.gaps[call.rank].update([int(gap_s / GAP_UNIT_S) for gap_s in own_s])
            call.num_tokens += count
            call.last_at = ends[-1]
            second.tokens[call.rank] += count
            second.service[call.rank_at_node] += DECODE_EXTRA * count
            account = second.accounts.get(call.account, 0.0)
            second.accounts[call.account] = account + count * (1.0 + DECODE_EXTRA)

    def step(self, running: Running, now: float) -> None:
        """A step is over."""
        self._count_busy(running, now)
        second = self._second
        second.num_steps += 1
        step = running.step
        for rank, tokens in enumerate(step.num_tokens):
            second.service[rank] += tokens
            second.computed[rank] += tokens
        if not self.warmup_s <= now < self.duration_s:
            return
        totals = self.steps
        totals.num_steps += 1
        totals.took_s += running.took_s
        totals.tokens += step.features.num_tokens
        totals.token_budget += step.budget_tokens
        self.longest_step_s = max(self.longest_step_s, running.took_s)
        if step.predicted_s is not None:
            totals.num_predicted += 1
            totals.predicted_s += step.predicted_s
            totals.actual_of_predicted_s += running.took_s
            totals.error_s += abs(step.predicted_s - running.took_s)
            if step.budget_s is not None and step.features.num_prefills > 0:
                totals.num_budgeted += 1
                totals.budgeted_s += step.predicted_s
                totals.time_budget_s += step.budget_s
                totals.num_late += running.took_s > step.safety * step.budget_s

    def _count_busy(self, running: Running, until: float) -> None:
        begin = running.ends_at - running.took_s
        measured_s = min(until, self.duration_s) - max(begin, self.warmup_s)
        self.busy_s += max(0.0, measured_s)

    def ended(self, call: Call) -> None:
        """A request has its outcome."""
        if call.first_at is None:
            self._waits_no_more(call)
        rows = self.rows
        rows.rank.append(call.rank)
        rows.account.append(call.account)
        assert call.outcome is not None, "ended without an outcome"
        rows.outcome.append(OUTCOMES.index(call.outcome))
        rows.arrival.append(call.arrival)
        rows.wait_s.append(-1.0 if call.sent_at is None else call.sent_at - call.arrival)
        rows.ttft_s.append(-1.0 if call.first_at is None else call.first_at - call.arrival)
        rows.tpot_s.append(_mean_gap(call))
        rows.max_gap_s.append(call.max_gap_s)
        rows.ended_at.append(call.ended_at)
        rows.deadline.append(inf if call.deadline is None else call.deadline)
        rows.prompt_tokens.append(call.num_prompt_tokens)
        rows.output_tokens.append(call.num_tokens)
        rows.num_preemptions.append(call.num_preemptions)
        rows.predicted_p90_s.append(-1.0 if call.predicted_p90_s is None else call.predicted_p90_s)

    def tick(
        self, now: float, waiting: Sequence[int], limit: int | None, nodes: Sequence[SimNode]
    ) -> None:
        """A second is over, `now`. `waiting`: at the gateway, by rank."""
        second = self._second
        stats = [node.scheduler.stats() for node in nodes if node.scheduler is not None]
        for rank in range(self.num_ranks):
            second.waiting[rank] = waiting[rank] + sum(each.waiting[rank] for each in stats)
            second.running[rank] = sum(each.running[rank] for each in stats)
        second.kv_used = sum(each.kv_used for each in stats) / max(1, len(stats))
        second.limit = limit
        second.backlogged = frozenset(key for key, n in self._open_before.items() if n > 0)
        self._open_before = dict(self._open)
        self._latest_tick = now
        self.seconds.append(second)
        self._second = self._new_second()

    @property
    def rest(self) -> Second:
        """The second that has begun."""
        return self._second

    def keep(self, nodes: Iterable[SimNode], now: float) -> None:
        """The run is over for these nodes: keep their engines' counts, and what their steps took.

        What a step under way computes is lost.
        """
        for node in nodes:
            if node.running is not None:
                self._count_busy(node.running, now)
            if node.scheduler is not None:
                self.engines.append(node.scheduler.stats())

    def check_balanced(self) -> None:
        """Raise AssertionError unless each arrival has ended (G9)."""
        assert self.num_arrived == self.num_ended, "a request has no outcome, or two"
        assert not self._open, "a tenant still waits"


def _mean_gap(call: Call) -> float:
    if call.first_at is None or call.num_tokens < 2:
        return 0.0
    return (call.last_at - call.first_at) / (call.num_tokens - 1)
