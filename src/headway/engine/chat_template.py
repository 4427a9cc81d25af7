"""How do the messages of a chat become one prompt?

A model brings its own Jinja template. It is foreign code: it runs in a sandbox that lets it change
nothing, and whatever goes wrong in it is the request's failure, never the server's.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headway.engine.chat_messages import prepare_messages, refuse
from headway.errors import InvalidRequestError, ModelLoadError

DEFAULT_TEMPLATE = "default"
TOOL_TEMPLATE = "tool_use"
_PROBE = "headway probe"
# The space at its end tells whether the template trims the message it ends.
_TAIL_MARK = "\ue000headway continues here\ue000 "
_OWN_VARIABLES = frozenset(("messages", "add_generation_prompt", "raise_exception", "strftime_now"))


def _local_now() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """The templates of one model, compiled. Templates and variables are those of `transformers`."""

    def __init__(
        self,
        templates: Mapping[str, str],
        special_tokens: Mapping[str, str],
        now: Callable[[], datetime] = _local_now,
    ) -> None:
        """Compile `templates`, by name; there may be none.

        `special_tokens` are the variables `bos_token`, `eos_token` and so on; `now` answers
        `strftime_now`. Raises ModelLoadError for a template with a syntax error.
        """
        self._special_tokens = dict(special_tokens)
        environment = _environment(now)
        self._templates = {
            name: _Template(environment, name, source, self._special_tokens)
            for name, source in templates.items()
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt. Special tokens are in it as text, so encode it without adding any.

        `continue_final_message` ends the prompt inside the last message, for the model to go on.
        `variables` (tools, documents, what `chat_template_kwargs` holds) are the template's own.
        Raises InvalidRequestError, param `messages`, when there is no template or it refuses.
        """
        given = {} if variables is None else dict(variables)
        taken = sorted(given.keys() & (_OWN_VARIABLES | self._special_tokens.keys()))
        if taken:
            raise InvalidRequestError(f"{taken[0]} is not for the caller to set", param=taken[0])
        if add_generation_prompt and continue_final_message:
            raise InvalidRequestError(
                "add_generation_prompt and continue_final_message exclude each other",
                param="continue_final_message",
            )
        template = self._choose(given)
        given["add_generation_prompt"] = add_generation_prompt
        text = template.render(messages, given, mark_tail=continue_final_message)
        return _until_mark(text) if continue_final_message else text

    def _choose(self, variables: Mapping[str, Any]) -> "_Template":
        names = [TOOL_TEMPLATE] if variables.get("tools") else []
        for name in [*names, DEFAULT_TEMPLATE]:
            if name in self._templates:
                return self._templates[name]
        raise refuse("this model has no chat template; use /v1/completions")


class _Template:
    """One compiled template, and what it expects of messages."""

    def __init__(
        self,
        environment: jinja2.Environment,
        name: str,
        source: str,
        special_tokens: Mapping[str, str],
    ) -> None:
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelLoadError(f"chat template {name!r}: {error}") from error
        self._special_tokens = special_tokens
        self._developer_role = "developer" in source
        self._as_parts = False
        self._as_parts = not self._shows_probe() and self._shows_probe(as_parts=True)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        *,
        mark_tail: bool,
    ) -> str:
        prepared = prepare_messages(
            messages, as_parts=self._as_parts, developer_role=self._developer_role
        )
        if mark_tail:
            last = prepared[-1]
            if self._as_parts:
                last["content"][-1]["text"] += _TAIL_MARK
            else:
                last["content"] += _TAIL_MARK
        return self._run(prepared, variables)

    def _run(self, messages: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        context = {"tools": None, "documents": None, **self._special_tokens, **variables}
        try:
            text = self._template.render(context, messages=messages)
            text.encode()
        except UnicodeEncodeError:
            raise refuse("messages hold half of a surrogate pair, which is not text") from None
        except Exception as error:  # a template may raise anything
            raise refuse(f"the chat template refuses these messages: {error}") from error
        return text

    def _shows_probe(self, *, as_parts: bool = False) -> bool:
        """Tell whether a message of this form appears in the prompt at all."""
        content = [{"type": "text", "text": _PROBE}] if as_parts else _PROBE
        try:
            return _PROBE in self._run([{"role": "user", "content": content}], {})
        except InvalidRequestError:
            return False


def _until_mark(text: str) -> str:
    """Return the prompt up to the mark at the end of the last message."""
    start = text.rfind(_TAIL_MARK.rstrip())
    if start < 0:
        raise refuse("the chat template does not show the final message, so it cannot go on")
    trimmed = not text.startswith(_TAIL_MARK, start)
    return text[:start].rstrip() if trimmed else text[:start]


def _environment(now: Callable[[], datetime]) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: now().strftime(form)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as it is, where Jinja's own filter would escape it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


class _GenerationBlock(Extension):
    """`{% generation %}`, which marks the assistant's own words for training; here it is plain."""

    tags = {"generation"}  # noqa: RUF012 Jinja declares the attribute so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
