"""What does a Hugging Face folder say about its text?

`tokenizer.json` is the tokenizer itself, and alone says which tokens surround a text; the files
beside it add the ends of text, the chat templates and more special tokens. All as `transformers`
reads them.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from headway.engine.chat_template import DEFAULT_TEMPLATE
from headway.engine.tokenizer_parts import TokenizerParts, chat_end_ids
from headway.errors import ModelLoadError

_SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


def read_hf_tokenizer(folder: Path) -> TokenizerParts:
    """Read the tokenizer of a folder. Raises ModelLoadError, naming the file that is wrong."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelLoadError(f"{path}: missing; other tokenizer formats are not read")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelLoadError(f"{path}: {error}") from error
    # A file may carry these from its training; they would cut prompts silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config = _read_object(folder / "tokenizer_config.json")
    _add_declared_tokens(tokenizer, config, folder)
    special_tokens = _special_tokens(folder, config)
    bos = special_tokens.get("bos_token")
    eos = special_tokens.get("eos_token")
    eos_ids = set(chat_end_ids(tokenizer))
    if eos is not None and (eos_id := tokenizer.token_to_id(eos)) is not None:
        eos_ids.add(eos_id)
    for name in ("generation_config.json", "config.json"):
        eos_ids.update(_eos_ids(folder / name))
    return TokenizerParts(
        tokenizer=tokenizer,
        bos_token_id=None if bos is None else tokenizer.token_to_id(bos),
        eos_token_ids=frozenset(eos_ids),
        special_tokens=special_tokens,
        chat_templates=dict(_chat_templates(folder, config)),
    )


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, an empty one when there is no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: not a JSON object")
    return value


def _content(token: object) -> str | None:
    """Return the text of a token, which is written as a string or as an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    sources = (_read_object(folder / "special_tokens_map.json"), config)
    found = ((n, _content(source.get(n))) for source in sources for n in _SPECIAL_NAMES)
    return {name: text for name, text in found if text is not None}


def _add_declared_tokens(
    tokenizer: tokenizers.Tokenizer, config: Mapping[str, Any], folder: Path
) -> None:
    """Add the tokens that only `tokenizer_config.json` declares, under the ids it gives them."""
    declared = config.get("added_tokens_decoder", {})
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    try:
        for token_id, token in sorted((int(key), value) for key, value in declared.items()):
            if token["content"] not in known:
                flags = {k: v for k, v in token.items() if k not in ("content", "__type")}
                tokenizer.add_tokens([tokenizers.AddedToken(token["content"], **flags)])
                if tokenizer.token_to_id(token["content"]) != token_id:
                    raise ValueError(f"token {token['content']!r} cannot have id {token_id}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        path = folder / "tokenizer_config.json"
        raise ModelLoadError(f"{path}: added_tokens_decoder: {error}") from error


def _eos_ids(path: Path) -> Iterator[int]:
    value = _read_object(path).get("eos_token_id")
    for item in value if isinstance(value, list) else [value]:
        if item is None:
            continue
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise ModelLoadError(f"{path}: eos_token_id must be a token id or a list of them")
        yield item


def _chat_templates(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, source); later ones overrule earlier ones of the same name."""
    yield from _named(config.get("chat_template"), folder / "tokenizer_config.json")
    path = folder / "chat_template.json"
    yield from _named(_read_object(path).get("chat_template"), path)
    for path in [folder / "chat_template.jinja", *folder.glob("additional_chat_templates/*.jinja")]:
        if path.is_file():
            name = DEFAULT_TEMPLATE if path.parent == folder else path.stem
            try:
                yield name, path.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise ModelLoadError(f"{path}: {error}") from error


def _named(value: object, path: Path) -> Iterator[tuple[str, str]]:
    """Read a template that is written as a string, or several as a list of named ones."""
    if value is None:
        return
    items = value if isinstance(value, list) else [{"name": DEFAULT_TEMPLATE, "template": value}]
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        source = item.get("template") if isinstance(item, dict) else None
        if not isinstance(name, str) or not isinstance(source, str):
            raise ModelLoadError(f"{path}: chat_template must be a string or a list of named ones")
        yield name, source
