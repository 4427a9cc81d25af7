"""What is known of one request, and how does it end exactly once?

Everything a request holds hangs on its `Exchange`; `finish` gives all of it back, whichever way the
request ended, and only its first call counts.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from secrets import token_hex

from headway.clock import Clock
from headway.core.outcome import Outcome
from headway.flowcontrol.controller import Lease
from headway.gateway.access_log import Record, log_record
from headway.gateway.events import TokenCounts
from headway.gateway.explain import ExplainRing
from headway.gateway.identity import Caller, TierChoice
from headway.metrics.gateway import GatewayMetrics

NO_TOKENS = TokenCounts(0, 0, 0, estimated=False)


class Exchange:
    """One request from arrival to outcome. Times are the clock's, in seconds."""

    def __init__(self, id: str, client_id: str, path: str, arrival: float) -> None:
        self.id = id
        self.client_id = client_id
        """The client's own id, or the one it was given; a label for people, never a key."""
        self.path = path
        self.arrival = arrival
        self.caller: Caller | None = None
        self.choice: TierChoice | None = None
        self.model: str | None = None
        self.stream = False
        self.queue_s = 0.0
        self.wait_p90_s: float | None = None
        """The p90 of the wait predicted at its arrival."""
        self.promoted = False
        """Whether it was served in a tier above its own, to meet its deadline."""
        self.node: str | None = None
        self.attempts = 0
        self.ttft_s: float | None = None
        self.tokens = NO_TOKENS
        self.answered = False
        """Whether the client has all of the answer; leaving after that is no cancellation."""
        self.outcome: Outcome | None = None
        self.e2e_s = 0.0
        self.detail: str | None = None
        """What went wrong, for the log and for the request's owner."""
        self.cut_off = False
        """Whether the gateway itself stopped it, because it shuts down."""
        self.headers: list[tuple[bytes, bytes]] = [(b"x-request-id", client_id.encode())]
        """Headers of the answer; the list stays the same one, its content grows."""
        self._task = asyncio.current_task()
        self._lease: Lease | None = None

    @property
    def rank(self) -> int | None:
        """The tier used, None before it is known."""
        return None if self.choice is None else self.choice.used.rank

    def classified(self, choice: TierChoice) -> None:
        """The tier is known."""
        self.choice = choice
        self.headers.append((b"x-headway-tier", choice.used.name.encode()))

    def took(self, lease: Lease) -> None:
        """A node has a place for it."""
        self._lease = lease
        self.attempts += 1
        if self.wait_p90_s is None and lease.wait is not None:
            self.wait_p90_s = lease.wait.p90_s
        self.promoted = lease.rank != self.rank
        self.queue_s += lease.queue_s
        self.node = lease.node.name
        self.headers[2:] = (
            (b"x-headway-queue-ms", b"%d" % (self.queue_s * 1000)),
            (b"x-headway-node", lease.node.name.encode()),
        )

    def started(self, ttft_s: float) -> None:
        """The node has sent the first token."""
        self.ttft_s = ttft_s
        if self._lease is not None:
            self._lease.started()

    def give_back(self, cost: float | None) -> None:
        """Free the node's place and settle the cost, None for the predicted one. Idempotent."""
        if self._lease is not None:
            self._lease.release(cost)
            self._lease = None

    def cut(self) -> None:
        """Stop the request, wherever it is."""
        self.cut_off = True
        if self._task is not None:
            self._task.cancel()


class Exchanges:
    """Opens and closes the exchanges of one gateway. `cost_of` prices what was served."""

    def __init__(
        self,
        clock: Clock,
        metrics: GatewayMetrics,
        ring: ExplainRing,
        cost_of: Callable[[int, int, int], float],
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._ring = ring
        self._cost_of = cost_of
        # Unguessable across processes, unique within one.
        self._prefix = token_hex(8)
        self._numbers = count(1)
        self._open: set[Exchange] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._open)

    def open(self, client_id: str, path: str) -> Exchange:
        """Begin a request that has just arrived."""
        number = next(self._numbers)
        exchange = Exchange(f"{self._prefix}{number:x}", client_id, path, self._clock.now())
        self._open.add(exchange)
        self._idle.clear()
        return exchange

    def settle(self, exchange: Exchange) -> None:
        """The node is done with it: give its place back at the cost of what was served."""
        tokens = exchange.tokens
        exchange.give_back(
            self._cost_of(tokens.prompt_tokens, tokens.completion_tokens, tokens.cached_tokens)
        )

    def finish(self, exchange: Exchange, outcome: Outcome, detail: str | None = None) -> None:
        """End a request: give back what it holds, then count, log and remember it. Idempotent."""
        if exchange.outcome is not None:
            return
        exchange.outcome = outcome
        exchange.detail = detail
        exchange.e2e_s = self._clock.now() - exchange.arrival
        if outcome is Outcome.CANCELLED and exchange.tokens is NO_TOKENS:
            # The node was busy with it, and told nothing: who leaves early is not served for free.
            exchange.give_back(None)
        self.settle(exchange)
        tokens = exchange.tokens
        self._metrics.finished(
            outcome,
            rank=exchange.rank,
            tenant=None if exchange.caller is None else exchange.caller.tenant,
            model=exchange.model,
            e2e_s=exchange.e2e_s,
            prompt_tokens=tokens.prompt_tokens,
            output_tokens=tokens.completion_tokens,
        )
        record = _record(exchange, outcome)
        log_record(record)
        self._ring.add(record)
        self._open.discard(exchange)
        if not self._open:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Return once every request has ended."""
        await self._idle.wait()

    def cut_all(self) -> None:
        """Stop every request that has not ended."""
        for exchange in list(self._open):
            exchange.cut()


def _record(exchange: Exchange, outcome: Outcome) -> Record:
    caller, choice, tokens = exchange.caller, exchange.choice, exchange.tokens
    return Record(
        id=exchange.id,
        client_id=exchange.client_id,
        path=exchange.path,
        tenant=None if caller is None else caller.tenant,
        model=exchange.model,
        stream=exchange.stream,
        asked_tier=None if choice is None else choice.asked.name,
        used_tier=None if choice is None else choice.used.name,
        queue_ms=round(exchange.queue_s * 1000, 3),
        wait_p90_ms=None if exchange.wait_p90_s is None else round(exchange.wait_p90_s * 1000, 3),
        promoted=exchange.promoted,
        node=exchange.node,
        attempts=exchange.attempts,
        ttft_ms=None if exchange.ttft_s is None else round(exchange.ttft_s * 1000, 3),
        e2e_ms=round(exchange.e2e_s * 1000, 3),
        prompt_tokens=tokens.prompt_tokens,
        completion_tokens=tokens.completion_tokens,
        cached_tokens=tokens.cached_tokens,
        estimated=tokens.estimated,
        outcome=outcome.value,
        detail=exchange.detail,
    )
