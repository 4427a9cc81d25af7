"""Which handler answers this path and method?

A handler is a plain ASGI callable. Paths are matched whole; a path that ends in `/` serves all that
lie below it. What a handler raises becomes an error in OpenAI's shape.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.types import Receive, Scope, Send

from headway.wire.http import (
    Headers,
    Responder,
    request_id,
    send_method_not_allowed,
    send_not_found,
    single_header,
)
from headway.wire.node import REQUEST_ID_HEADER

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Routes = Mapping[str, Mapping[str, Handler]]
"""Path → method → handler."""

LifespanHook = Callable[[], Awaitable[None]]

REQUEST_ID_KEY = "headway.request_id"
"""Where the scope holds the request id that is echoed as `X-Request-Id`."""


def reply_headers(scope: Scope) -> Headers:
    """Return the headers that every response carries."""
    return ((b"x-request-id", scope[REQUEST_ID_KEY].encode("ascii")),)


class Router:
    """The ASGI app of a server: its routes and what happens at start and stop."""

    def __init__(
        self,
        routes: Routes,
        *,
        on_start: LifespanHook | None = None,
        on_stop: LifespanHook | None = None,
    ) -> None:
        self._exact = {path: dict(by) for path, by in routes.items() if not path.endswith("/")}
        below = [(path, dict(by)) for path, by in routes.items() if path.endswith("/")]
        self._below = sorted(below, key=lambda item: len(item[0]), reverse=True)
        self.on_start = on_start
        self.on_stop = on_stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003, "reason": ""})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REQUEST_ID_KEY] = request_id(scope)
        responder = Responder(send)
        try:
            await self._dispatch(scope, receive, responder.send)
        except Exception as error:  # noqa: BLE001 - the boundary: a failed handler is one bad answer
            await responder.answer_failure(error, reply_headers(scope))

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        single_header(scope, REQUEST_ID_HEADER)
        methods = self._match(scope["path"])
        headers = reply_headers(scope)
        if methods is None:
            await send_not_found(send, scope["path"], headers)
            return
        method = scope["method"]
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            await send_method_not_allowed(send, method, sorted(methods), headers)
            return
        await handler(scope, receive, send)

    def _match(self, path: str) -> Mapping[str, Handler] | None:
        exact = self._exact.get(path)
        if exact is not None:
            return exact
        for prefix, methods in self._below:
            if path.startswith(prefix) and len(path) > len(prefix):
                return methods
        return None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Run the hooks when the server says so. A start that fails stops the server."""
        await receive()
        if self.on_start is not None:
            try:
                await self.on_start()
            except Exception as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self.on_stop is not None:
            await self.on_stop()
        await send({"type": "lifespan.shutdown.complete"})
