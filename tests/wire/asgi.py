"""An ASGI server's side, in memory: what the app is given, and what it sends."""

import asyncio
from collections.abc import Iterable

from starlette.types import Message, Scope


def scope_of(
    path: str = "/", *, method: str = "GET", headers: Iterable[tuple[str, str]] = ()
) -> Scope:
    """Return the scope of a request."""
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http", "method": method, "path": path, "headers": encoded, "extensions": {}}


class Client:
    """Sends `parts` as the body, then stays until told to leave; remembers what it gets."""

    def __init__(self, *parts: bytes, leaves: bool = False) -> None:
        self._messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": at + 1 < len(parts) or leaves}
            for at, part in enumerate(parts)
        ]
        self.left = asyncio.Event()
        if leaves:
            self.left.set()
        self.reads = asyncio.Event()
        """While cleared, a write blocks."""
        self.reads.set()
        self.blocked = asyncio.Event()
        """Set while a write is blocked."""
        self.sent: list[Message] = []
        self.news = asyncio.Event()

    async def receive(self) -> Message:
        """Give the next part, or wait until the client leaves."""
        if self._messages:
            return self._messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take what the app sends."""
        if not self.reads.is_set():
            self.blocked.set()
            await self.reads.wait()
        self.sent.append(message)
        self.news.set()

    @property
    def status(self) -> int:
        """The status sent."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers sent."""
        return {key.decode(): value.decode() for key, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        """The body sent so far."""
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def complete(self) -> bool:
        """Whether the response was ended."""
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)
