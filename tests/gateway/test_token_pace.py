"""How fast the tokens of one stream come from the node."""

import asyncio

import pytest

from headway.clock import ManualClock
from headway.flowcontrol.meter import NodeMeter
from headway.gateway.events import Translator
from headway.gateway.exchange import Exchange
from headway.gateway.token_pace import TokenPace
from headway.metrics.gateway import GatewayMetrics, Reading

NOTHING = Reading(
    queue_depth=(0,),
    queue_tokens=(0,),
    wait_estimates=(0,),
    waits_within_p90=(0,),
    nodes=(),
    desired_replicas=1,
)


class Stream:
    """A stream of rank 0, target 50 ms, on a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self.exchange = asyncio.run(self.opened())
        self.translator = Translator("default", num_prompt_tokens=1)
        self.meter = NodeMeter([0.05])
        self.meter.close(self.clock.now(), 1)
        metrics = GatewayMetrics(
            ("critical",), top_tenants=1, models=frozenset, read=lambda: NOTHING
        )
        self.pace = TokenPace(self.exchange, self.translator, self.meter, metrics, self.clock)

    async def opened(self) -> Exchange:
        """An exchange belongs to a task."""
        return Exchange("id", "id", "/", self.clock.now())

    def read(self, after_s: float, tokens: int = 1, write_s: float = 0.0) -> None:
        """Let tokens come after so long, and be written to the client for so long."""
        self.clock.advance(after_s)
        self.translator.num_events += tokens
        self.pace.read()
        self.clock.advance(write_s)
        self.pace.written()

    def itl_s(self) -> float:
        """Return what the node's window says."""
        self.clock.advance(10.0)
        self.meter.tokens_came(0, 500)
        signals = self.meter.close(self.clock.now(), 1)
        assert signals is not None
        assert signals.itl_s is not None
        return signals.itl_s


def test_the_first_token_is_no_gap_and_the_others_are() -> None:
    stream = Stream()
    stream.read(7.0)
    assert stream.exchange.ttft_s == 7.0
    for _ in range(30):
        stream.read(0.02)
    assert stream.itl_s() == pytest.approx(0.02, rel=0.1)


def test_what_a_slow_client_held_up_is_no_gap_of_the_node() -> None:
    stream = Stream()
    stream.read(0.1)
    for _ in range(30):
        stream.read(0.02)
        stream.read(0.02, write_s=5.0)
        # What the node sent meanwhile is read at once.
        stream.read(0.0, tokens=3)
    assert stream.itl_s() == pytest.approx(0.02, rel=0.1)


def test_events_without_content_do_not_count() -> None:
    stream = Stream()
    stream.read(0.1)
    for _ in range(30):
        stream.read(0.03, tokens=0)
        stream.read(0.03)
    assert stream.itl_s() == pytest.approx(0.06, rel=0.1)
