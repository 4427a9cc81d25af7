"""Does the repository keep its own layout rules?"""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headway"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

MAX_LINES = 400
MAX_LINES_PURE = 200
PURE = ("core", "kv")
FORBIDDEN_NAMES = {"utils", "helpers", "common", "types", "constants", "base", "manager"}
WITHOUT_QUESTION = {"__init__", "__main__"}

_QUESTION = re.compile(r"[^.!?]+\?")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(
    r"(?:src|tests|docs|core|kv|engine|gateway|flowcontrol|config|metrics|wire|cli|bench)/[\w./-]+"
)


def name_of(path: Path) -> str:
    """Return the path as the tests' ids show it."""
    return str(path.relative_to(ROOT))


def package_of(path: Path) -> str:
    """Return the package of a module within `headway`, or nothing for one at the top."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 50
    assert any(page.name == "configuration.md" for page in PAGES)


@pytest.mark.parametrize("path", [*MODULES, *TESTS], ids=name_of)
def test_no_file_is_too_long_or_named_after_nothing(path: Path) -> None:
    is_pure = path.is_relative_to(SOURCE) and package_of(path) in PURE
    limit = MAX_LINES_PURE if is_pure else MAX_LINES
    assert len(path.read_text(encoding="utf-8").splitlines()) <= limit
    assert path.stem not in FORBIDDEN_NAMES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_each_module_starts_with_its_question(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if path.stem in WITHOUT_QUESTION:
        return
    assert docstring is not None
    assert _QUESTION.match(docstring.splitlines()[0])


def test_no_two_modules_ask_the_same_question() -> None:
    questions: dict[str, Path] = {}
    for path in MODULES:
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        if path.stem in WITHOUT_QUESTION or docstring is None:
            continue
        question = docstring.splitlines()[0]
        assert question not in questions, (path, questions.get(question))
        questions[question] = path


@pytest.mark.parametrize("path", [p for p in MODULES if p.stem == "__init__"], ids=name_of)
def test_every_exported_name_exists(path: Path) -> None:
    module = importlib.import_module(".".join(path.parent.relative_to(SOURCE.parent).parts))
    for name in getattr(module, "__all__", []):
        assert hasattr(module, name), name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_path_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    missing = [
        link
        for link in _LINK.findall(text)
        if "://" not in link and not (page.parent / link).exists()
    ]
    for code in _CODE.findall(text):
        if _PATH.fullmatch(code) and not any((at / code).exists() for at in (ROOT, SOURCE)):
            missing.append(code)
    assert missing == []


def test_every_package_of_tests_has_the_name_of_a_package() -> None:
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()} | {"e2e"}
    folders = {path.parent.relative_to(ROOT / "tests").parts[:1] for path in TESTS} - {()}
    assert {parts[0] for parts in folders} <= packages
