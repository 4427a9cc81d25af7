"""Does a scenario contradict itself, or ask for more than a run can hold?

What no key shows by itself. The files that a scenario names are read here, so that what is wrong
with them is found before anything runs.
"""

from collections.abc import Iterator
from pathlib import Path

from headway.config.decode import check_names
from headway.core.limits import MOST_SLOTS
from headway.core.predictor import StepFeatures
from headway.errors import ConfigError
from headway.sim.baselines.sarathi import chunk_size
from headway.sim.baselines.static_partition import shares
from headway.sim.cost_model import cost_model
from headway.sim.policies import POLICIES, knobs_of
from headway.sim.scenario import (
    BacklogArrivals,
    ClosedArrivals,
    DiurnalArrivals,
    EmpiricalLength,
    PoissonArrivals,
    Scenario,
    StepsArrivals,
    StreamConfig,
    TraceArrivals,
)
from headway.sim.trace import TraceRow, read_trace
from headway.sim.workload import times_of

MOST_REQUESTS = 100_000_000
"""Each is a row of about a hundred bytes when it has ended, and two while the run is measured."""


def check_consistency(scenario: Scenario) -> None:
    """Raise ConfigError, by path, for what is wrong as a whole."""
    if not scenario.warmup_s < scenario.duration_s:
        raise ConfigError("warmup_s", f"must be below duration_s, {scenario.duration_s:g}")
    for name in ("duration_s", "warmup_s"):
        if getattr(scenario, name) % 1 != 0:
            raise ConfigError(name, "must be whole seconds: what happens is counted by second")
    _check_first_limit(scenario)
    if not scenario.streams:
        raise ConfigError("streams", "nobody sends anything: at least one [[streams]] is needed")
    for index in range(len(scenario.streams)):
        _check_stream(scenario, index)
    _check_events(scenario)
    _check_step_times(scenario)
    _check_tenants(scenario)
    _check_requests(scenario)
    _check_knobs(scenario)


def _check_first_limit(scenario: Scenario) -> None:
    most, first = scenario.nodes.max_inflight, scenario.nodes.first_limit
    if first is None:
        return
    if most is None and first > MOST_SLOTS:
        raise ConfigError("nodes.first_limit", f"must be at most {MOST_SLOTS}: none learns more")
    if most is not None and first > most:
        raise ConfigError("nodes.first_limit", f"must be at most max_inflight, {most}")


def _check_stream(scenario: Scenario, index: int) -> None:
    stream, at = scenario.streams[index], f"streams[{index}]"
    tiers = [tier.name for tier in scenario.tiers.all]
    if stream.name in [other.name for other in scenario.streams[:index]]:
        raise ConfigError(f"{at}.name", f"{stream.name!r} is already taken")
    if stream.tier not in tiers:
        raise ConfigError(f"{at}.tier", f"no tier {stream.tier!r}; allowed: {', '.join(tiers)}")
    if stream.end_s is not None and stream.end_s <= stream.start_s:
        raise ConfigError(f"{at}.end_s", f"must be above start_s, {stream.start_s:g}")
    for length in (stream.prompt_tokens, stream.output_tokens):
        if isinstance(length, EmpiricalLength):
            read_trace(Path(length.trace), length.divisor)
    if isinstance(stream.arrivals, TraceArrivals):
        for row in _rows(stream.arrivals):
            if row.tier and scenario.tiers.by_name(row.tier) is None:
                line = f"{stream.arrivals.file}, line {row.line}"
                raise ConfigError(line, f"no tier {row.tier!r}; allowed: {', '.join(tiers)}")


def _rows(arrivals: TraceArrivals) -> tuple[TraceRow, ...]:
    return read_trace(Path(arrivals.file), arrivals.token_divisor)


def _check_events(scenario: Scenario) -> None:
    for index, event in enumerate(scenario.events):
        at = f"events[{index}]"
        if event.node >= scenario.nodes.count:
            raise ConfigError(f"{at}.node", f"there are {scenario.nodes.count} nodes, from 0")
        if event.until_s is not None and event.until_s <= event.at_s:
            raise ConfigError(f"{at}.until_s", f"must be above at_s, {event.at_s:g}")
        for before, other in enumerate(scenario.events[:index]):
            begins_later = other.until_s is not None and other.until_s <= event.at_s
            ends_sooner = event.until_s is not None and event.until_s <= other.at_s
            same = type(other) is type(event) and other.node == event.node
            if same and not begins_later and not ends_sooner:
                text = f"events[{before}] does the same to node {event.node} at that time"
                raise ConfigError(f"{at}.at_s", text)


def _check_step_times(scenario: Scenario) -> None:
    """Ask for steps that every run has; others are refused when they come."""
    model = cost_model(scenario.nodes.cost_model)
    for num_tokens in (1, scenario.nodes.max_num_batched_tokens):
        model.time_s(StepFeatures().plus_prefill(num_tokens, 0))
    model.time_s(StepFeatures().plus_decode(1))


def _check_tenants(scenario: Scenario) -> None:
    for index, tenant in enumerate(scenario.tenants):
        at = f"tenants[{index}].name"
        if tenant.name in [other.name for other in scenario.tenants[:index]]:
            raise ConfigError(at, f"{tenant.name!r} is already taken")
        if not any(_sends_as(stream, tenant.name) for stream in scenario.streams):
            known = ", ".join(name for stream in scenario.streams for name in _senders(stream))
            raise ConfigError(at, f"no stream sends as {tenant.name!r}; there are {known}")


def _sends_as(stream: StreamConfig, tenant: str) -> bool:
    arrivals = stream.arrivals
    if isinstance(arrivals, TraceArrivals) and any(r.tenant == tenant for r in _rows(arrivals)):
        return True
    base = stream.name if stream.tenant is None else stream.tenant
    if stream.num_tenants == 1:
        return tenant == base
    start, _, number = tenant.rpartition("-")
    is_number = number.isdecimal() and number.isascii() and str(int(number)) == number
    return start == base and is_number and int(number) < stream.num_tenants


def _senders(stream: StreamConfig) -> Iterator[str]:
    """Yield what to call the tenants of a stream in a message."""
    base = stream.name if stream.tenant is None else stream.tenant
    yield base if stream.num_tenants == 1 else f"{base}-0 to {base}-{stream.num_tenants - 1}"
    if isinstance(stream.arrivals, TraceArrivals):
        yield f"those in {stream.arrivals.file}"


def _check_requests(scenario: Scenario) -> None:
    total = 0.0
    for index, stream in enumerate(scenario.streams):
        total += _most_drawn(scenario, stream)
        if total > MOST_REQUESTS:
            text = (
                f"about {total:.2g} requests are drawn up to here, {MOST_REQUESTS:,} are the most"
            )
            raise ConfigError(f"streams[{index}].arrivals", text)


def _most_drawn(scenario: Scenario, stream: StreamConfig) -> float:
    """Return about how many requests are drawn; where the rate varies, as many as at its highest.

    Those that a lower rate leaves out are drawn, too.
    """
    times, arrivals = times_of(scenario, stream), stream.arrivals
    if isinstance(arrivals, BacklogArrivals):
        return arrivals.count
    if isinstance(arrivals, ClosedArrivals):
        return arrivals.callers
    if isinstance(arrivals, PoissonArrivals):
        rate = arrivals.rate
    elif isinstance(arrivals, StepsArrivals):
        rate = max(value for _, value in arrivals.rates)
    elif isinstance(arrivals, DiurnalArrivals):
        rate = arrivals.mean_rate * (1 + arrivals.amplitude)
    else:
        return len(_rows(arrivals))
    return rate * scenario.load * max(0.0, times.end - times.start)


def _check_knobs(scenario: Scenario) -> None:
    """Refuse what no policy reads; one that others read is theirs, for a file is for all."""
    known = [knob for name in POLICIES for knob in knobs_of(name, scenario.tiers)]
    check_names(scenario.policy, dict.fromkeys(known), "policy")
    chunk_size(scenario.policy)
    shares(scenario.policy, scenario.tiers)
