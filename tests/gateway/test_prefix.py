"""Which requests begin alike (G11: never across tenants)."""

import json
from typing import Any

from headway.gateway.job import derive_salt
from headway.gateway.prefix import PREFIX_BYTES, prefix_key
from headway.wire.chat import decode_chat
from headway.wire.completions import decode_completion

LONG = "You help customers of a shop. " * 50
SALT = derive_salt("a", "")


def chat(*messages: tuple[str, str], salt: str = SALT) -> str | None:
    body = {"model": "m", "messages": [{"role": r, "content": text} for r, text in messages]}
    return prefix_key(decode_chat(json.dumps(body).encode()), salt)


def text(prompt: Any, salt: str = SALT) -> str | None:
    return prefix_key(
        decode_completion(json.dumps({"model": "m", "prompt": prompt}).encode()), salt
    )


def test_tenants_and_their_own_salts_never_share_a_key() -> None:
    keys = {chat(("system", LONG), salt=derive_salt(*who)) for who in (("a", ""), ("b", ""))}
    keys |= {chat(("system", LONG), salt=derive_salt("a", "x"))}
    assert len(keys) == 3
    assert None not in keys
    assert text(LONG) != text(LONG, derive_salt("b", ""))


def test_conversations_share_a_long_beginning_and_turns_of_one_share_a_short_one() -> None:
    assert chat(("system", LONG), ("user", "1")) == chat(("system", LONG), ("user", "2"))
    short, question = LONG[:200], "Where is my parcel? " * 5
    first = chat(("system", short), ("user", question))
    later = (("assistant", "On its way."), ("user", "Thanks"))
    assert first is not None
    assert chat(("system", short), ("user", question), *later) == first
    assert chat(("system", short), ("user", "Another. " * 20)) != first


def test_roles_and_bounds_of_messages_count() -> None:
    half = LONG[:600]
    assert chat(("system", half + half)) != chat(("system", half), ("system", half))
    assert chat(("system", LONG)) != chat(("developer", LONG))


def test_prompts_are_compared_by_their_beginning() -> None:
    start = LONG[:PREFIX_BYTES]
    assert text(start + "x") == text(start + "y")
    assert text("x" + start) != text("y" + start)
    tokens = list(range(PREFIX_BYTES // 4))
    assert text([*tokens, 1]) == text([*tokens, 2])
    assert text([7, *tokens]) != text([8, *tokens])


def test_what_is_short_has_no_key() -> None:
    assert chat(("user", "hi")) is None
    assert text("hi") is None
    assert text([1, 2, 3]) is None
