"""Is another node asked, and is this one still well?

Only before the first byte of an answer. A refused connection or a full node cost nothing, so the
request goes on to the next node that has room, or waits for one. An error or a lost connection may
have cost work, and the request may be its cause: it is tried once more. Silence has used up the
time already, and a request that the node calls wrong would be wrong at the next.
"""

from headway.core.outcome import Outcome
from headway.errors import NodeError
from headway.flowcontrol.controller import ShedError
from headway.flowcontrol.nodes import MAX_FAILURES, Node, NodePool
from headway.gateway.node_client import (
    NodeBusyError,
    NodeFailedError,
    NodeInternalError,
    NodeRefusedError,
    NodeRejectedError,
)

MAX_ATTEMPTS = 8
"""How often a request is sent in all."""
DEFAULT_HOLD_S = 1.0
"""How long a node that says it is full, without saying for how long, is left alone."""


class Retries:
    """The attempts of one request, whose `body` is what nodes are sent."""

    def __init__(self, pool: NodePool, body: bytes) -> None:
        self._pool = pool
        self._body = body
        self._attempts = 0
        self._failures = 0
        self.avoid: set[str] = set()
        """Nodes that failed to start it."""

    @property
    def again(self) -> bool:
        """Whether it was sent before."""
        return self._attempts > 0

    def failed(self, node: Node, error: NodeError, now: float) -> None:
        """Note that `node` did not start the answer. Returns when another attempt is due.

        Raises `error`, or ShedError when every node was full, when there is none.
        """
        self._attempts += 1
        self.avoid.add(node.name)
        blame(self._pool, node, error, self._body, now)
        if isinstance(error, NodeFailedError):
            self._failures += 1
        repeatable = isinstance(error, NodeRefusedError | NodeBusyError | NodeFailedError)
        if repeatable and self._attempts < MAX_ATTEMPTS and self._failures < MAX_FAILURES:
            return
        if isinstance(error, NodeBusyError):
            raise ShedError(Outcome.EVICTED_SATURATED, _hold_s(error)) from error
        raise error


def blame(pool: NodePool, node: Node, error: NodeError, body: bytes, now: float) -> None:
    """Tell the pool what `error`, at a request with that body, says about the node."""
    if isinstance(error, NodeRefusedError):
        pool.refused(node)
    elif isinstance(error, NodeBusyError):
        pool.hold(node, _hold_s(error), now)
    elif isinstance(error, NodeRejectedError):
        pool.succeeded(node)
    elif isinstance(error, NodeInternalError):
        pool.failed(node, cause=hash(body))
    else:
        pool.failed(node)


def _hold_s(error: NodeBusyError) -> float:
    return DEFAULT_HOLD_S if error.retry_after_s is None else error.retry_after_s
