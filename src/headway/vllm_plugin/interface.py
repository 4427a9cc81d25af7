"""What is there of a member of vLLM?

Read off the installed code without running it: signatures, what `__init__` stores, and which
attributes a function reads.
"""

import dis
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from headway.vllm_plugin.members import Member

_INITIALISERS = ("__init__", "__post_init__")


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a member, as far as it may matter."""

    parameters: tuple[str, ...] = ()
    open_ended: bool = False
    """Whether it takes parameters of any name."""
    fields: frozenset[str] = frozenset()
    abstract: frozenset[str] = frozenset()
    reads: Mapping[str, int] = field(default_factory=dict)
    """How often its body reads which attribute."""
    returns: str = ""
    """Its return annotation, modules left out."""


def look_up(member: Member) -> Found | None:
    """Return what the installed vLLM has of a member; None: nothing."""
    try:
        found = importlib.import_module(member.module)
        for part in member.name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found_of(found)


def found_of(thing: Any) -> Found:
    """Return what there is of a class, a function or a value."""
    if not isinstance(thing, type) and not inspect.isroutine(thing):
        return Found()
    signature = _signature(thing)
    kinds = inspect.Parameter
    code = getattr(inspect.unwrap(thing), "__code__", None)
    return Found(
        parameters=tuple(
            name
            for name, parameter in signature.parameters.items()
            if name != "self" and parameter.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
        ),
        open_ended=any(p.kind is kinds.VAR_KEYWORD for p in signature.parameters.values()),
        fields=fields_of(thing) if isinstance(thing, type) else frozenset(),
        abstract=frozenset(getattr(thing, "__abstractmethods__", ())),
        reads=Counter(_reads(code)) if code is not None else {},
        returns=_returns(signature),
    )


def _signature(thing: Any) -> inspect.Signature:
    try:
        return inspect.signature(thing)
    except (TypeError, ValueError):  # compiled code has none
        return inspect.Signature()


def _returns(signature: inspect.Signature) -> str:
    annotation = signature.return_annotation
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\w+\.", "", text)


def fields_of(cls: type) -> frozenset[str]:
    """Return the attributes of a class's instances: those it defines, or stores in `__init__`."""
    names: set[str] = set()
    for base in cls.__mro__:
        names.update(vars(base))
        names.update(getattr(base, "__dataclass_fields__", ()))
        for initialiser in _INITIALISERS:
            function = inspect.unwrap(vars(base).get(initialiser, object))
            code = getattr(function, "__code__", None)
            if code is not None:
                names.update(_stores_on_self(code))
    return frozenset(names)


def _stores_on_self(code: CodeType) -> Iterator[str]:
    """Yield the attributes that a method stores on its first parameter.

    A store follows the load of the object it is on. Newer Pythons load two variables at once: the
    object is then the second.
    """
    this = code.co_varnames[0] if code.co_argcount else ""
    loaded: object = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "EXTENDED_ARG":
            continue
        if instruction.opname == "STORE_ATTR" and loaded == this:
            yield instruction.argval
        loaded = None
        if "LOAD_FAST" in instruction.opname or instruction.opname == "LOAD_DEREF":
            value = instruction.argval
            loaded = value[-1] if isinstance(value, tuple) else value


def _reads(code: CodeType) -> Iterator[str]:
    """Yield the attributes that a function reads or calls, those of its inner ones included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reads(constant)
