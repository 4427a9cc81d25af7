"""Does every test that the table of field faults names exist, and is every case in it?"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = (ROOT / "docs" / "field-faults.md").read_text(encoding="utf-8")
CASES = {
    "A": (1, 2, 4, 5, 7, 8, 10, 12),
    "B": (1, 2, 4, 5),
    "C": (1, 2, 4, 5, 6, 7, 9),
    "D": (1, 3, 4),
}
_ROW = re.compile(r"^\| ([A-D]\d+) \| .+ \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions(path: str) -> frozenset[str]:
    """Return the names of the functions of a file; none when there is no such file."""
    file = ROOT / path
    if not file.exists():
        return frozenset()
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_every_case_has_its_tests() -> None:
    rows = dict(_ROW.findall(TABLE))
    assert list(rows) == [f"{section}{n}" for section, numbers in CASES.items() for n in numbers]
    assert [case for case, tests in rows.items() if not _TEST.search(tests)] == []


def test_every_test_that_is_named_exists() -> None:
    named = _TEST.findall(TABLE)
    assert TABLE.count("::") == len(named) > 100
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []
