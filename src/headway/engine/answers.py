"""How does what the engine generates look in OpenAI's two APIs?

Both kinds of answer offer the same three methods, so that one handler serves both endpoints. Of
several prompts, choice `i` of prompt `p` has the index `p * n + i`.
"""

import time
import uuid
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from headway.engine.request import Choice, FinishReason, RequestOutput, TokenLogprob
from headway.engine.tokenizer import Tokenizer
from headway.wire.chat import ChatCompletionRequest
from headway.wire.chat_answers import (
    AnswerMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChunkChoice,
    Delta,
)
from headway.wire.completion_answers import Completion, CompletionChoice
from headway.wire.completions import CompletionRequest
from headway.wire.logprobs import (
    DrawnToken,
    TokenText,
    chat_logprobs,
    completion_logprobs,
)
from headway.wire.usage import Usage, usage_of


class Answer(Protocol):
    """One answer of either API."""

    def whole(self, outputs: Sequence[RequestOutput]) -> bytes:
        """Return the JSON of the whole answer; one complete output for each prompt."""

    def events(self, prompt: int, output: RequestOutput, usage: Usage | None) -> list[bytes]:
        """Return the JSON of the events for what a prompt gained. `usage` goes on each, if any."""

    def usage_event(self, usage: Usage) -> bytes:
        """Return the JSON of the event that ends a stream with its usage."""


class Tally:
    """The token counts of an answer, over all its prompts."""

    def __init__(self) -> None:
        self._latest: dict[int, RequestOutput] = {}

    def note(self, prompt: int, output: RequestOutput) -> None:
        """Take the counts of a prompt's latest output."""
        self._latest[prompt] = output

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        outputs = self._latest.values()
        return usage_of(
            sum(output.num_prompt_tokens for output in outputs),
            sum(output.num_output_tokens for output in outputs),
            sum(output.num_cached_tokens for output in outputs),
        )


def _usage(outputs: Sequence[RequestOutput]) -> Usage:
    tally = Tally()
    for prompt, output in enumerate(outputs):
        tally.note(prompt, output)
    return tally.usage


def _drawn(tokenizer: Tokenizer, logprobs: Sequence[TokenLogprob]) -> list[DrawnToken]:
    def shown(token_id: int, logprob: float) -> TokenText:
        data = tokenizer.token_bytes(token_id)
        return TokenText(tokenizer.token_text(token_id), data, logprob)

    return [
        DrawnToken(shown(one.token_id, one.logprob), tuple(shown(*pair) for pair in one.top))
        for one in logprobs
    ]


def _finish(reason: FinishReason | None) -> str | None:
    return None if reason is None else reason.value


def _gained(choice: Choice) -> bool:
    """Whether there is anything to tell of a choice; held back text alone is not."""
    return bool(choice.text or choice.logprobs) or choice.finish_reason is not None


class ChatAnswer:
    """An answer of `/v1/chat/completions`."""

    def __init__(
        self,
        request: ChatCompletionRequest,
        tokenizer: Tokenizer,
        model: str,
        prompts: Sequence[Sequence[int]],
    ) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._shows_ids = request.return_token_ids is True
        self._prompt = list(prompts[0])
        self._opened: set[int] = set()

    def whole(self, outputs: Sequence[RequestOutput]) -> bytes:
        """See `Answer`."""
        [output] = outputs
        return msgspec.json.encode(
            ChatCompletion(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=[self._choice(choice) for choice in output.choices],
                usage=_usage(outputs),
                prompt_token_ids=self._prompt if self._shows_ids else UNSET,
            )
        )

    def _choice(self, choice: Choice) -> ChatChoice:
        logprobs = choice.logprobs
        return ChatChoice(
            index=choice.index,
            message=AnswerMessage(choice.text),
            finish_reason=str(_finish(choice.finish_reason)),
            logprobs=None if logprobs is None else chat_logprobs(_drawn(self._tokenizer, logprobs)),
            stop_reason=choice.stop_reason,
            token_ids=self._ids(choice),
        )

    def events(self, prompt: int, output: RequestOutput, usage: Usage | None) -> list[bytes]:
        """See `Answer`. The first event of a choice carries the role."""
        events = []
        for choice in output.choices:
            if not (self._shows_ids or _gained(choice)):
                continue
            prompt_ids = self._prompt if self._shows_ids and not self._opened else UNSET
            events.append(self._event([self._delta(choice)], usage, prompt_ids))
        return events

    def _delta(self, choice: Choice) -> ChunkChoice:
        first = choice.index not in self._opened
        self._opened.add(choice.index)
        logprobs = choice.logprobs
        return ChunkChoice(
            index=choice.index,
            delta=Delta(
                role="assistant" if first else UNSET,
                content=choice.text if first or choice.text else UNSET,
            ),
            finish_reason=_finish(choice.finish_reason),
            logprobs=None if logprobs is None else chat_logprobs(_drawn(self._tokenizer, logprobs)),
            stop_reason=UNSET if choice.finish_reason is None else choice.stop_reason,
            token_ids=self._ids(choice),
        )

    def usage_event(self, usage: Usage) -> bytes:
        """See `Answer`."""
        return self._event([], usage)

    def _event(
        self,
        choices: list[ChunkChoice],
        usage: Usage | None,
        prompt_ids: list[int] | UnsetType = UNSET,
    ) -> bytes:
        return msgspec.json.encode(
            ChatCompletionChunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=choices,
                usage=UNSET if usage is None else usage,
                prompt_token_ids=prompt_ids,
            )
        )

    def _ids(self, choice: Choice) -> list[int] | UnsetType:
        return list(choice.token_ids) if self._shows_ids else UNSET


class CompletionAnswer:
    """An answer of `/v1/completions`."""

    def __init__(
        self,
        request: CompletionRequest,
        tokenizer: Tokenizer,
        model: str,
        prompts: Sequence[Sequence[int]],
    ) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._id = f"cmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._shows_ids = request.return_token_ids is True
        self._n = request.num_choices_per_prompt
        self._prompts = [list(prompt) for prompt in prompts]
        self._offsets: dict[int, int] = {}
        """Of each choice with log-probabilities, the characters of its tokens so far."""
        self._opened: set[int] = set()

    def whole(self, outputs: Sequence[RequestOutput]) -> bytes:
        """See `Answer`."""
        choices = [
            self._choice(prompt, choice)
            for prompt, output in enumerate(outputs)
            for choice in output.choices
        ]
        return self._encode(choices, _usage(outputs))

    def events(self, prompt: int, output: RequestOutput, usage: Usage | None) -> list[bytes]:
        """See `Answer`."""
        shown = [choice for choice in output.choices if self._shows_ids or _gained(choice)]
        return [self._encode([self._choice(prompt, choice)], usage) for choice in shown]

    def usage_event(self, usage: Usage) -> bytes:
        """See `Answer`."""
        return self._encode([], usage)

    def _encode(self, choices: list[CompletionChoice], usage: Usage | None) -> bytes:
        return msgspec.json.encode(
            Completion(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=choices,
                usage=UNSET if usage is None else usage,
            )
        )

    def _choice(self, prompt: int, choice: Choice) -> CompletionChoice:
        index = prompt * self._n + choice.index
        first = index not in self._opened
        self._opened.add(index)
        logprobs = None
        if choice.logprobs is not None:
            drawn = _drawn(self._tokenizer, choice.logprobs)
            offset = self._offsets.get(index, 0)
            logprobs = completion_logprobs(drawn, offset)
            self._offsets[index] = offset + sum(len(one.token.text) for one in drawn)
        return CompletionChoice(
            index=index,
            text=choice.text,
            finish_reason=_finish(choice.finish_reason),
            logprobs=logprobs,
            stop_reason=choice.stop_reason,
            token_ids=list(choice.token_ids) if self._shows_ids else UNSET,
            prompt_token_ids=self._prompts[prompt] if self._shows_ids and first else UNSET,
        )
