"""How does one generation request travel, from its arrival to its one outcome?

Identity, tier and validity first; then the queue; then a node, and another one if that fails before
its first byte; then the relay. Whatever happens on the way is an exception, and turns into the
outcome and the answer in one place.
"""

import asyncio
from functools import partial

from starlette.types import Receive, Scope, Send

from headway.clock import Clock
from headway.config import GatewayConfig
from headway.core.outcome import Outcome
from headway.errors import ModelNotFoundError, NodeError
from headway.flowcontrol.controller import Lease, ShedError
from headway.flowcontrol.nodes import Node
from headway.gateway.endings import Ending, ending_of
from headway.gateway.exchange import Exchange, Exchanges
from headway.gateway.forward import Forwarder
from headway.gateway.identity import PRIORITY_ASKED_HEADER, Caller, Identity
from headway.gateway.job import Endpoint, Job, JobMaker, Order, read_order
from headway.gateway.node_stream import NodeStream
from headway.gateway.relay import Relay
from headway.gateway.token_pace import TokenPace
from headway.metrics.gateway import GatewayMetrics
from headway.wire.event_stream import EventStream, WriteTimeoutError
from headway.wire.http import (
    ClientDisconnectError,
    read_body,
    run_until_disconnect,
    send_bytes,
    single_header,
)
from headway.wire.offload import Offload
from headway.wire.routing import REQUEST_ID_KEY
from headway.wire.sse import frame


class Generator:
    """Serves both generation endpoints."""

    def __init__(
        self,
        config: GatewayConfig,
        identity: Identity,
        jobs: JobMaker,
        bodies: Offload,
        forward: Forwarder,
        exchanges: Exchanges,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._config = config
        self._identity = identity
        self._jobs = jobs
        self._bodies = bodies
        self._forward = forward
        self._exchanges = exchanges
        self._metrics = metrics
        self._clock = clock

    async def serve(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; it has its outcome when this returns or raises."""
        exchange = self._exchanges.open(scope[REQUEST_ID_KEY], endpoint.path)
        try:
            caller = self._identity.authenticate(single_header(scope, "authorization"))
            exchange.caller = caller
            body = await read_body(scope, receive, self._config.max_body_bytes)
            answering = self._answer(exchange, endpoint, caller, body, scope, send)
            # Not kept until the answer is complete: it may be large.
            del body
            await run_until_disconnect(receive, answering)
            self._exchanges.finish(exchange, Outcome.COMPLETED)
        except (Exception, asyncio.CancelledError) as error:
            ending = self._end(exchange, error)
            if ending.reply is not None:
                status, headers, body = ending.reply
                await send_bytes(send, status, body, [*exchange.headers, *headers])
            elif not isinstance(error, ClientDisconnectError | WriteTimeoutError):
                raise

    def _end(self, exchange: Exchange, error: BaseException) -> Ending:
        """Give the request the outcome that `error` means."""
        task = asyncio.current_task()
        if exchange.cut_off and isinstance(error, asyncio.CancelledError) and task is not None:
            task.uncancel()
        ending = ending_of(error, exchange)
        self._exchanges.finish(exchange, ending.outcome, ending.detail)
        return ending

    async def _answer(
        self,
        exchange: Exchange,
        endpoint: Endpoint,
        caller: Caller,
        body: bytes,
        scope: Scope,
        send: Send,
    ) -> None:
        order = await self._bodies.run(len(body), partial(read_order, endpoint, body, caller))
        del body
        job = self._accept(exchange, endpoint, caller, order, scope)
        travel = self._stream if order.streams else self._whole
        await travel(exchange, job, scope, send)

    def _accept(
        self, exchange: Exchange, endpoint: Endpoint, caller: Caller, order: Order, scope: Scope
    ) -> Job:
        """Find out at which tier it is served. Raises ClientError."""
        exchange.model = order.model
        exchange.stream = order.streams
        priority = single_header(scope, PRIORITY_ASKED_HEADER)
        choice = self._identity.choose_tier(caller, priority, order.service_tier)
        exchange.classified(choice)
        if choice.asked is not choice.used:
            self._metrics.downgraded(choice.asked.rank, choice.used.rank)
        if not self._forward.serves(order.model):
            text = f"the model '{order.model[:200]}' is not served here"
            raise ModelNotFoundError(text, param="model")
        return self._jobs.make(exchange.id, endpoint, order, caller, choice.used, exchange.arrival)

    async def _whole(self, exchange: Exchange, job: Job, scope: Scope, send: Send) -> None:
        translator = job.translator()
        timeout_s = job.whole_timeout_s(self._config.first_byte_timeout_s)

        async def ask(lease: Lease) -> bytes:
            data = await self._forward.client.fetch(
                lease.node,
                job.path,
                job.body_at(self._clock.now()),
                job.headers_at(lease.rank),
                timeout_s=timeout_s,
            )
            return translator.whole(data)

        node, body = await self._forward.send(exchange, job, ask)
        exchange.tokens = translator.counts
        node.meter.tokens_came(job.queued.rank, exchange.tokens.completion_tokens)
        exchange.answered = True
        self._complete(exchange, job)
        await send_bytes(send, 200, body, exchange.headers)

    async def _stream(self, exchange: Exchange, job: Job, scope: Scope, send: Send) -> None:
        out = EventStream(
            scope,
            send,
            write_timeout_s=self._config.write_timeout_s,
            heartbeat_s=self._config.heartbeat_s,
            headers=exchange.headers,
        )
        async with out:
            out.start_within(self._config.status_timeout_s)
            try:
                await self._relay(exchange, job, out)
            except (NodeError, ShedError, asyncio.CancelledError) as error:
                gone = isinstance(error, asyncio.CancelledError) and not exchange.cut_off
                if gone or not out.started:
                    raise
                # The status is out already, so the stream itself has to say it; no [DONE] follows.
                ending = self._end(exchange, error)
                await out.finish(frame(ending.body))

    async def _relay(self, exchange: Exchange, job: Job, out: EventStream) -> None:
        async def ask(lease: Lease) -> Relay:
            return await self._open_relay(lease, job, out)

        node, relay = await self._forward.send(exchange, job, ask)
        try:
            last = await self._pass_on(exchange, node, relay, out)
        except NodeError as error:
            self._forward.blame(node, error, job)
            raise
        finally:
            relay.stream.close()
            exchange.tokens = relay.translator.counts
        exchange.answered = True
        self._complete(exchange, job)
        await out.finish(last)

    async def _open_relay(self, lease: Lease, job: Job, out: EventStream) -> Relay:
        """Ask the node, and return its stream at the first content."""
        limit_s = self._config.first_byte_timeout_s
        asked_at = self._clock.now()
        answer = await self._forward.client.post(
            lease.node,
            job.path,
            job.body_at(asked_at),
            job.headers_at(lease.rank),
            timeout_s=limit_s,
        )
        left_s = max(0.0, limit_s - (self._clock.now() - asked_at))
        stream = NodeStream(
            answer, first_byte_timeout_s=left_s, gap_timeout_s=self._config.gap_timeout_s
        )
        relay = Relay(stream, job.translator())
        try:
            await relay.open(out, self._config.heartbeat_s)
        except BaseException:
            stream.close()
            raise
        return relay

    async def _pass_on(
        self, exchange: Exchange, node: Node, relay: Relay, out: EventStream
    ) -> bytes:
        """Relay everything but the last frames, and return those."""
        pace = TokenPace(exchange, relay.translator, node.meter, self._metrics, self._clock)
        while True:
            frames = await relay.next()
            pace.read()
            if relay.done:
                await relay.stream.finish()
                if not out.started:
                    await out.start()
                return frames
            if frames:
                if not out.started:
                    await out.start()
                await out.write(frames)
                pace.written()
                exchange.answered = relay.translator.answered

    def _complete(self, exchange: Exchange, job: Job) -> None:
        """The node is done and the answer is whole."""
        self._jobs.completed(job, exchange.tokens.completion_tokens)
        self._exchanges.settle(exchange)
