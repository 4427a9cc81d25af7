"""Which requests arrive, and when?

Everything is drawn from generators seeded by the run's seed and the stream's name, never by what a
policy did: two policies meet the same requests at the same times. Only closed loops depend on their
answers, and there each caller draws its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from random import Random

from msgspec import Struct

from headway.sim.call import Call
from headway.sim.lengths import Draw, draw_of
from headway.sim.scenario import (
    BacklogArrivals,
    ClosedArrivals,
    DiurnalArrivals,
    PoissonArrivals,
    Scenario,
    StepsArrivals,
    StreamConfig,
    TraceArrivals,
)
from headway.sim.trace import TraceRow, read_trace


@dataclass(frozen=True, slots=True)
class Times:
    """A stream's own clock: from `start` to `end`, in seconds of the scenario."""

    start: float
    end: float


def times_of(scenario: Scenario, stream: StreamConfig) -> Times:
    """Return when the stream may send."""
    end = scenario.duration_s if stream.end_s is None else stream.end_s
    return Times(stream.start_s, min(end, scenario.duration_s))


class TraceRows(Struct, frozen=True, kw_only=True):
    """How much of a trace a stream replays."""

    num_rows: int
    num_before: int
    """Left out, for they are before `from_s`."""
    num_after: int
    """Left out, for the stream has ended by then."""
    num_cut: int
    """Replayed with an answer cut to the stream's `max_tokens`."""


def trace_rows(scenario: Scenario) -> dict[str, TraceRows]:
    """Return what becomes of the rows of each stream that replays a trace, by its name."""
    found = {}
    for stream in scenario.streams:
        if isinstance(stream.arrivals, TraceArrivals):
            times = times_of(scenario, stream)
            rows = list(_replayed(stream.arrivals, scenario.load))
            kept = [row for since, row in rows if since >= 0 and times.start + since < times.end]
            num_before = sum(since < 0 for since, _ in rows)
            found[stream.name] = TraceRows(
                num_rows=len(rows),
                num_before=num_before,
                num_after=len(rows) - num_before - len(kept),
                num_cut=sum(row.output_tokens > stream.max_tokens for row in kept),
            )
    return found


class Source:
    """One stream: its open-loop calls in order of time, or the next call of a caller."""

    def __init__(self, scenario: Scenario, index: int, seed: int) -> None:
        stream = scenario.streams[index]
        self.index = index
        self.stream = stream
        self._rank = _rank_of(scenario, stream.tier)
        self._scenario = scenario
        self._seed = f"{seed}/{stream.name}"
        self._times = times_of(scenario, stream)
        self._prompt: Draw = draw_of(stream.prompt_tokens, _prompt_of)
        self._output: Draw = draw_of(stream.output_tokens, _output_of)
        self._weights = {tenant.name: tenant.weight for tenant in scenario.tenants}
        self._num_calls = 0
        self._callers: list[Random] = []

    def calls(self) -> Iterator[Call]:
        """Yield the calls whose time does not depend on any answer, in order of time."""
        rng = Random(f"{self._seed}/shape")
        arrivals = self.stream.arrivals
        if isinstance(arrivals, TraceArrivals):
            yield from self._replay(arrivals, rng)
            return
        for at in self._open_times(Random(f"{self._seed}/arrivals")):
            yield self._draw(at, rng)

    def first_of_callers(self) -> list[Call]:
        """Return the first call of each caller of a closed loop; none for other streams."""
        arrivals = self.stream.arrivals
        if not isinstance(arrivals, ClosedArrivals):
            return []
        self._callers = [Random(f"{self._seed}/caller/{n}") for n in range(arrivals.callers)]
        numbers = range(arrivals.callers)
        calls = [self._next_of(number, self._times.start) for number in numbers]
        return [call for call in calls if call is not None]

    def after(self, call: Call) -> Call | None:
        """Return what its caller sends after `call` has ended; None: nothing more.

        One that was refused waits as long as it was told.
        """
        if call.caller < 0:
            return None
        return self._next_of(call.caller, call.ended_at + call.retry_after_s)

    def _next_of(self, caller: int, since: float) -> Call | None:
        arrivals, rng = self.stream.arrivals, self._callers[caller]
        assert isinstance(arrivals, ClosedArrivals), "only closed loops have callers"
        think_s = rng.expovariate(1 / arrivals.think_s) if arrivals.think_s > 0 else 0.0
        if since + think_s >= self._times.end:
            return None
        call = self._draw(since + think_s, rng)
        call.caller = caller
        return call

    def _open_times(self, rng: Random) -> Iterator[float]:
        arrivals, times, load = self.stream.arrivals, self._times, self._scenario.load
        if isinstance(arrivals, PoissonArrivals):
            return _renewals(rng, arrivals.rate * load, arrivals.cv, times)
        if isinstance(arrivals, StepsArrivals):
            most = load * max(rate for _, rate in arrivals.rates)
            return _thinned(rng, lambda at: load * _step_rate(arrivals, at), most, times)
        if isinstance(arrivals, DiurnalArrivals):
            most = load * arrivals.mean_rate * (1 + arrivals.amplitude)
            return _thinned(rng, lambda at: load * _day_rate(arrivals, at), most, times)
        count = arrivals.count if isinstance(arrivals, BacklogArrivals) else 0
        return iter([times.start] * count if times.start < times.end else [])

    def _replay(self, arrivals: TraceArrivals, rng: Random) -> Iterator[Call]:
        for since, row in _replayed(arrivals, self._scenario.load):
            if since < 0:
                continue
            at = self._times.start + since
            if at >= self._times.end:
                return
            call = self._draw(at, rng)
            call.num_prompt_tokens = row.prompt_tokens
            call.num_prefix_tokens = min(call.num_prefix_tokens, row.prompt_tokens)
            call.num_output_tokens = min(row.output_tokens, self.stream.max_tokens)
            if row.tenant:
                call.tenant = row.tenant
                call.weight = self._weights.get(row.tenant, 1.0)
            if row.tier:
                call.rank = _rank_of(self._scenario, row.tier)
            yield call

    def _draw(self, at: float, rng: Random) -> Call:
        stream = self.stream
        tenant = stream.name if stream.tenant is None else stream.tenant
        if stream.num_tenants > 1:
            tenant = f"{tenant}-{int(rng.random() * stream.num_tenants)}"
        prompt = self._prompt(rng)
        call = Call(
            request_id=f"{stream.name}-{self._num_calls}",
            source=self.index,
            rank=self._rank,
            tenant=tenant,
            weight=self._weights.get(tenant, 1.0),
            arrival=at,
            num_prompt_tokens=prompt,
            num_output_tokens=min(self._output(rng), stream.max_tokens),
            max_tokens=stream.max_tokens,
            deadline=None if stream.deadline_s is None else at + stream.deadline_s,
        )
        self._num_calls += 1
        if stream.prefix is not None:
            call.prefix_id = str(int(rng.random() * stream.prefix.groups))
            call.num_prefix_tokens = stream.prefix.tokens
            call.num_prompt_tokens = prompt + stream.prefix.tokens
        if stream.cancel_share > 0 and rng.random() < stream.cancel_share:
            call.cancel_at = at + rng.random() * stream.cancel_after_s
        return call


def _rank_of(scenario: Scenario, tier: str) -> int:
    found = scenario.tiers.by_name(tier)
    assert found is not None, "checked when the scenario was read"
    return found.rank


def _replayed(arrivals: TraceArrivals, load: float) -> Iterator[tuple[float, TraceRow]]:
    """Yield all rows, each with its time since the stream's start; below 0: before `from_s`."""
    for row in read_trace(Path(arrivals.file), arrivals.token_divisor):
        yield (row.arrival_s - arrivals.from_s) / (arrivals.rate_factor * load), row


def _prompt_of(row: TraceRow) -> int:
    return row.prompt_tokens


def _output_of(row: TraceRow) -> int:
    return row.output_tokens


def _renewals(rng: Random, rate: float, cv: float, times: Times) -> Iterator[float]:
    shape = 1 / (cv * cv)
    at = times.start
    while True:
        at += rng.gammavariate(shape, 1 / (shape * rate))
        if at >= times.end:
            return
        yield at


def _thinned(
    rng: Random, rate: Callable[[float], float], most: float, times: Times
) -> Iterator[float]:
    """Yield Poisson arrivals of a varying rate: those of the highest, each kept by its chance."""
    at = 0.0
    while most > 0:
        at += rng.expovariate(most)
        if times.start + at >= times.end:
            return
        if rng.random() * most < rate(at):
            yield times.start + at


def _step_rate(arrivals: StepsArrivals, at: float) -> float:
    rate = 0.0
    for since, value in arrivals.rates:
        if since > at:
            break
        rate = value
    return rate


def _day_rate(arrivals: DiurnalArrivals, at: float) -> float:
    day, part = divmod(at / arrivals.day_s, 1.0)
    rate = arrivals.mean_rate * (1 - arrivals.amplitude * cos(2 * pi * part))
    return rate * arrivals.weekend if day % 7 >= 5 else rate
