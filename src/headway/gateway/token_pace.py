"""How fast do the tokens of one stream come from the node?"""

from headway.clock import Clock
from headway.flowcontrol.meter import NodeMeter
from headway.gateway.events import Translator
from headway.gateway.exchange import Exchange
from headway.metrics.gateway import GatewayMetrics

SLOW_WRITE_S = 0.002
"""A write that takes longer waits for the client, and so do the tokens that follow it."""


class TokenPace:
    """Times one stream, for the metrics and for the node's limit."""

    def __init__(
        self,
        exchange: Exchange,
        translator: Translator,
        meter: NodeMeter,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._exchange = exchange
        self._rank = 0 if exchange.rank is None else exchange.rank
        self._translator = translator
        self._meter = meter
        self._metrics = metrics
        self._clock = clock
        self._num_events = 0
        self._read_at = self._tokens_at = exchange.arrival
        self._held_up = False

    def read(self) -> None:
        """Something has come from the node."""
        now = self._read_at = self._clock.now()
        gained = self._translator.num_events - self._num_events
        if not gained:
            return
        gap_s: float | None = None
        if self._exchange.ttft_s is None:
            self._exchange.started(now - self._exchange.arrival)
            self._metrics.first_token(self._rank, now - self._exchange.arrival)
        else:
            gap_s = now - self._tokens_at
            self._metrics.next_token(self._rank, gap_s)
        # What a slow client held up says nothing about the node.
        self._meter.tokens_came(self._rank, gained, None if self._held_up else gap_s)
        self._num_events, self._tokens_at, self._held_up = self._translator.num_events, now, False

    def written(self) -> None:
        """What was read last has been written to the client."""
        self._held_up |= self._clock.now() - self._read_at > SLOW_WRITE_S
