"""How is one streamed request sent and timed?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from headway.bench.prompts import PromptSource
from headway.bench.records import RequestRecord
from headway.errors import NodeError
from headway.wire.sse import SSEParser

_CALIBRATION_WORDS = 200
_ERROR_CHARS = 200
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An OpenAI-compatible server. `base_url` may end with `/v1` or not."""

    base_url: str
    model: str | None = None
    """None: the first that it lists."""
    api_key: str | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    """`priority` in the body by tier, for a vLLM that schedules by it; empty: none is sent."""

    @property
    def api_root(self) -> str:
        """The URL that the paths of the API follow."""
        root = self.base_url.rstrip("/")
        return root if root.endswith("/v1") else f"{root}/v1"


class BenchClient:
    """Sends completions of an exact length. Use it as an async context manager."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._model = server.model

    async def __aenter__(self) -> "BenchClient":
        """Connect. Raises NodeError when the server does not answer or lists no model."""
        headers = {}
        if self._server.api_key is not None:
            headers["Authorization"] = f"Bearer {self._server.api_key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, connect=30),
            headers=headers,
        )
        try:
            if self._model is None:
                self._model = await self._first_model()
        except BaseException:
            await self._session.close()
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close every connection; requests in progress are cut."""
        await self._session.close()

    async def send(
        self, record: RequestRecord, prompt: str, max_tokens: int, now: Callable[[], float]
    ) -> None:
        """Send one request and fill `record`; whatever goes wrong is its `error`."""
        body = self._body(record.tier, prompt, max_tokens)
        try:
            async with self._session.post(
                f"{self._server.api_root}/completions",
                json=body,
                headers={"X-Priority": record.tier},
            ) as response:
                if response.status != 200:
                    text = await response.text()
                    record.error = f"{response.status}: {text[:_ERROR_CHARS]}"
                    return
                await _read_stream(response, record, now)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            record.error = f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
            return
        if record.finished and record.num_output_tokens != max_tokens:
            record.error = f"{record.num_output_tokens} tokens came, {max_tokens} were asked"

    def _body(self, tier: str, prompt: str, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tier in self._server.priorities:
            body["priority"] = self._server.priorities[tier]
        return body

    async def _first_model(self) -> str:
        url = f"{self._server.api_root}/models"
        try:
            async with self._session.get(url) as response:
                response.raise_for_status()
                listed = msgspec.json.decode(await response.read())
            return str(listed["data"][0]["id"])
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NodeError(f"{url} does not answer: {error}") from error
        except (msgspec.DecodeError, LookupError, TypeError) as error:
            raise NodeError(f"{url} lists no model") from error


async def calibrate(client: BenchClient, prompts: PromptSource, tier: str) -> None:
    """Measure how many tokens the server makes of a word. Raises NodeError when it cannot."""
    record = RequestRecord(tier=tier, sent_s=0.0)
    await client.send(record, prompts.words(_CALIBRATION_WORDS), 1, lambda: 0.0)
    if record.error is not None or record.num_prompt_tokens == 0:
        reason = "no usage came" if record.error is None else record.error
        raise NodeError(f"the first request failed: {reason}")
    prompts.tokens_per_word = record.num_prompt_tokens / _CALIBRATION_WORDS


async def _read_stream(
    response: aiohttp.ClientResponse, record: RequestRecord, now: Callable[[], float]
) -> None:
    parser = SSEParser()
    async for piece in response.content.iter_any():
        at = now()
        for data in parser.feed(piece):
            if data == _DONE:
                record.finished = True
            else:
                _take(msgspec.json.decode(data), record, at)
        if record.error is not None:
            return
    if not record.finished:
        record.error = "the stream ended without [DONE]"


def _take(event: Any, record: RequestRecord, at: float) -> None:
    if "error" in event:
        record.error = str(event["error"])[:_ERROR_CHARS]
        return
    if event.get("choices"):
        record.chunk_s.append(at)
    usage = event.get("usage")
    if usage is not None:
        record.num_prompt_tokens = usage["prompt_tokens"]
        record.num_output_tokens = usage["completion_tokens"]
