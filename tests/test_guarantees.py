"""Is every clause on the page of guarantees, and does every test exist where it says?"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
CLAUSES = {"G": 11, "I": 16, "B": 8, "M": 15}
NOT_SHOWN = "no test: "
"""How a row begins that names none, before the reason."""

_ROW = re.compile(r"^\| ([GIBM]\d+) \|[^|]*\|([^|]*)\|$", re.MULTILINE)
_QUOTED = re.compile(r"`([^`]*(?:::|test_)[^`]*)`")
_NAMED = re.compile(r"((?:tests|tests_vllm)/[\w/]+\.py)::((?:test_|Test)\w+)")

ROWS = [(clause, shown.strip()) for clause, shown in _ROW.findall(PAGE)]


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the tests that a file has at its top: functions, and names that are given to one."""
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(names)


def test_every_clause_has_its_row() -> None:
    expected = [f"{letter}{n}" for letter, last in CLAUSES.items() for n in range(1, last + 1)]
    assert [clause for clause, _ in ROWS] == expected


@pytest.mark.parametrize("quoted", _QUOTED.findall(PAGE))
def test_what_is_named_as_a_test_is_one_of_that_file(quoted: str) -> None:
    """By its path: a file of the same name in another folder does not count."""
    match = _NAMED.fullmatch(quoted)
    if match is None:
        assert (ROOT / quoted).is_file(), "neither a test nor a file"
    else:
        assert match[2] in defined_in(match[1])


@pytest.mark.parametrize(("clause", "shown"), ROWS)
def test_every_row_names_a_test_or_says_why_not(clause: str, shown: str) -> None:
    named = [quoted for quoted in _QUOTED.findall(shown) if _NAMED.fullmatch(quoted)]
    says_why = shown.startswith(NOT_SHOWN) and len(shown) > len(NOT_SHOWN)
    assert bool(named) != says_why, f"{clause}: {shown}"
