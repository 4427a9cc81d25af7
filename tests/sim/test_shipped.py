"""Does every shipped scenario run under every policy, at small size, and lose nothing?"""

import pytest
from msgspec.structs import replace

from headway.errors import ConfigError
from headway.sim.policies import POLICIES
from headway.sim.run import simulate
from headway.sim.scenario import BacklogArrivals, ClosedArrivals, Scenario, StreamConfig
from headway.sim.scenario_file import find_scenario, load_scenario, shipped_names

DURATION_S = 2.0
MOST_NODES = 4


def small(name: str) -> Scenario:
    """Return a shipped scenario, seconds long and with a few callers: the same structs."""
    loaded = load_scenario(find_scenario(name))
    factor = DURATION_S / loaded.duration_s
    return replace(
        loaded,
        duration_s=DURATION_S,
        warmup_s=0.0,
        drain_s=20.0,
        load=min(1.0, MOST_NODES / loaded.nodes.count),
        nodes=replace(loaded.nodes, count=min(MOST_NODES, loaded.nodes.count)),
        streams=tuple(_small(stream, factor) for stream in loaded.streams),
        events=tuple(
            replace(
                event,
                at_s=event.at_s * factor,
                until_s=None if event.until_s is None else event.until_s * factor,
            )
            for event in loaded.events
        ),
    )


def _small(stream: StreamConfig, factor: float) -> StreamConfig:
    arrivals = stream.arrivals
    if isinstance(arrivals, BacklogArrivals):
        arrivals = replace(arrivals, count=12)
    elif isinstance(arrivals, ClosedArrivals):
        arrivals = replace(arrivals, callers=6)
    return replace(stream, arrivals=arrivals, start_s=stream.start_s * factor)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_scenario_conserves_its_requests(name: str, policy: str) -> None:
    """G9, I0: the run itself checks every part when it ends."""
    if (name, policy) == ("large-request", "static-partition"):
        with pytest.raises(ConfigError, match="never fits"):
            simulate(small(name), policy)
        return
    report = simulate(small(name), policy)
    assert report.num_requests > 4
    submitted = sum(tier.num_submitted for tier in report.tiers)
    outcomes = sum(count for tier in report.tiers for count in tier.outcomes.values())
    assert submitted == outcomes == report.num_requests
