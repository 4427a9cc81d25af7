"""Are many equal steps, booked together, the same as one after the other?"""

from typing import Any

import msgspec
import pytest

from headway.sim.measures import measure
from headway.sim.scenario import Scenario
from headway.sim.world import World
from tests.sim.small import BULK, CRITICAL, scenario
from tests.sim.test_shipped import small

NODES = {"count": 2, "max_num_seqs": 16, "num_blocks": 256, "max_num_batched_tokens": 512}
LONG = {**CRITICAL, "output_tokens": {"kind": "uniform", "low": 1, "high": 200}}
LEAVERS = {**BULK, "arrivals": {"kind": "poisson", "rate": 3}, "cancel_share": 0.4}


def outcome(made: Scenario, *, may_repeat: bool) -> tuple[bytes, list[list[float]], int]:
    """Return the report, all rows of all requests, and how many steps were booked together."""
    world = World(made, "headway", may_repeat=may_repeat)
    recorder = world.run().recorder
    steps = sum(node.num_steps for node in world.nodes)
    report = measure(recorder, made, "headway", 0, steps)
    rows = [list(column) for column in vars(recorder.rows).values()]
    return msgspec.json.encode(report), rows, recorder.num_repeated


@pytest.mark.parametrize(
    "streams",
    [(LONG,), (LONG, LEAVERS), ({**LONG, "arrivals": {"kind": "closed", "callers": 4}}, BULK)],
    ids=["critical", "leavers", "closed"],
)
def test_the_outcome_is_the_same_to_the_last_bit(streams: tuple[dict[str, Any], ...]) -> None:
    events = [
        {"kind": "node-down", "node": 0, "at_s": 3.03, "until_s": 4.0},
        {"kind": "node-slow", "node": 1, "at_s": 5.01, "until_s": 6.0, "factor": 2.0},
    ]
    made = scenario(*streams, nodes=NODES, events=events, warmup_s=1)
    report, rows, num_repeated = outcome(made, may_repeat=True)
    report_of_each, rows_of_each, none_repeated = outcome(made, may_repeat=False)
    assert rows == rows_of_each
    assert report == report_of_each
    assert num_repeated > 50
    assert none_repeated == 0


@pytest.mark.parametrize("name", ["node-failure", "three-tiers", "long-prompt-hol"])
def test_shipped_scenarios_are_the_same_too(name: str) -> None:
    made = msgspec.structs.replace(small(name), duration_s=6.0)
    assert outcome(made, may_repeat=True)[:2] == outcome(made, may_repeat=False)[:2]
