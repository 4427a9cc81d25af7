"""Whom does vLLM find in its waiting queue?

Everybody waits in the planner's lines. While vLLM makes a step, its queue shows only whom the plan
admits, in the plan's order: so vLLM admits exactly those, in what it has of slots and blocks.
Requests that cannot run yet for a reason of vLLM's own (a grammar that compiles) wait aside.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from headway.vllm_plugin.entry import VllmRequest
from headway.vllm_plugin.planner import Planner

MAX_TRIED = 64
"""Most requests of one tier that wait aside and are asked in one step whether they can run now."""


class PlannedQueue:
    """The methods of vLLM's `RequestQueue`. Every change costs O(log n)."""

    def __init__(
        self,
        planner: Planner,
        is_blocked: Callable[[VllmRequest], bool],
        clock: Callable[[], float],
    ) -> None:
        self._planner = planner
        self._is_blocked = is_blocked
        self._clock = clock
        self._in_line: dict[str, VllmRequest] = {}
        self._aside: defaultdict[int, dict[str, VllmRequest]] = defaultdict(dict)
        """By rank, so that the urgent do not wait until thousands of others were asked."""
        self._offered: deque[VllmRequest] | None = None

    # -- what the scheduler adds to vLLM's queue --------------------------------------------------

    def offer(self, request_ids: Iterable[str]) -> None:
        """Show these only, in this order, until `withdraw`."""
        self._offered = deque(self._in_line[request_id] for request_id in request_ids)

    def withdraw(self) -> VllmRequest | None:
        """Show everybody again; return who was next and not taken, or None."""
        left, self._offered = self._offered, None
        return left[0] if left else None

    def retry_blocked(self, is_ready: Callable[[VllmRequest], bool]) -> None:
        """Let those stand in line that waited aside and are ready now; the others wait on."""
        for aside in self._aside.values():
            for request_id in list(islice(aside, MAX_TRIED)):
                request = aside.pop(request_id)
                if is_ready(request):
                    self.add_request(request)
                else:
                    aside[request_id] = request

    # -- vLLM's queue -----------------------------------------------------------------------------

    def add_request(self, request: VllmRequest) -> None:
        """Let a request wait, new or back again."""
        if request.request_id not in self._planner:
            self._planner.arrive(request, self._clock())
        if self._is_blocked(request):
            self._aside[self._planner.rank_of(request.request_id)][request.request_id] = request
        else:
            self._in_line[request.request_id] = request
            self._planner.stand_in_line(request.request_id, self._clock())

    def prepend_request(self, request: VllmRequest) -> None:
        """Let a request wait again: it has kept its place in the order."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[VllmRequest]) -> None:
        """Let requests wait again."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> VllmRequest:
        """Return who is next. Raises IndexError when there is nobody."""
        if self._offered is not None:
            return self._offered[0]
        for request in self:
            return request
        raise IndexError("nobody waits")

    def pop_request(self) -> VllmRequest:
        """Take out who is next. Raises IndexError when there is nobody."""
        request = self.peek_request()
        self.remove_request(request)
        return request

    def remove_request(self, request: VllmRequest) -> None:
        """Take out a request, if it waits here."""
        if self._offered is not None:
            if self._offered and self._offered[0] is request:
                self._offered.popleft()
            elif request in self._offered:
                self._offered.remove(request)
        for aside in self._aside.values():
            aside.pop(request.request_id, None)
        if self._in_line.pop(request.request_id, None) is not None:
            self._planner.leave_line(request.request_id)

    def remove_requests(self, requests: Iterable[VllmRequest]) -> None:
        """Take out requests, as far as they wait here."""
        for request in requests:
            self.remove_request(request)

    def __bool__(self) -> bool:
        """Return whether vLLM finds anybody."""
        return len(self) > 0 if self._offered is None else len(self._offered) > 0

    def __len__(self) -> int:
        """Return how many wait, shown or not."""
        return len(self._in_line) + sum(map(len, self._aside.values()))

    def __iter__(self) -> Iterator[VllmRequest]:
        """Yield all who wait, by tier; those at rest and those aside last."""
        others = dict(self._in_line)
        for request_id in self._planner.in_order():
            yield others.pop(request_id)
        yield from others.values()
        for aside in self._aside.values():
            yield from aside.values()
