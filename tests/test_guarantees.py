"""Does every test exist that the page of guarantees names, and is every clause on it?"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
CLAUSES = {"G": 11, "I": 16, "B": 8, "M": 15}

_NAMED = re.compile(r"`(test_\w+\.py)::(\w+)`")
_ROW = re.compile(r"^\| ([GIBM]\d+) \|", re.MULTILINE)


def test_every_test_that_is_named_exists() -> None:
    """A file name may occur in several packages; one of them has the test."""
    named = set(_NAMED.findall(PAGE))
    assert len(named) > 40
    missing = [
        (file, name)
        for file, name in sorted(named)
        if not any(name in defined_in(path) for path in (ROOT / "tests").rglob(file))
    ]
    assert missing == []


def defined_in(path: Path) -> set[str]:
    """Return the names that a module binds at its top."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_every_clause_has_its_row() -> None:
    expected = [f"{letter}{n}" for letter, last in CLAUSES.items() for n in range(1, last + 1)]
    assert _ROW.findall(PAGE) == expected


def test_every_row_names_a_test_or_says_why_not() -> None:
    for line in PAGE.splitlines():
        if match := _ROW.match(line):
            shown = line.split("|")[3]
            assert _NAMED.search(shown) or len(shown.split()) >= 2, match[1]
