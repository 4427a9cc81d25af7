"""Which vLLM does a test pretend is installed?"""

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


class RecordedVllm:
    """The modules of one vLLM release, as far as they were recorded (`tests_vllm/record.py`)."""

    def __init__(self, path: Path) -> None:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        self.version: str = recorded["version"]
        self.members: dict[str, dict[str, list[str]]] = recorded["members"]

    def load(self, module: str) -> Any:
        """Return a module with what was recorded of it. Raises ImportError when that is nothing."""
        names = [key.partition(":")[2] for key in self.members if key.startswith(f"{module}:")]
        if not names:
            raise ImportError(module)
        classes = {name.partition(".")[0] for name in names}
        return SimpleNamespace(**{name: self._class(module, name) for name in classes})

    def _class(self, module: str, name: str) -> type:
        entry = self.members.get(f"{module}:{name}", {})
        attributes: dict[str, Any] = dict.fromkeys(entry.get("fields", ()))
        for key, of_member in self.members.items():
            owner, _, attribute = key.partition(":")[2].partition(".")
            if key.startswith(f"{module}:") and owner == name and attribute:
                attributes[attribute] = _function(of_member)
        cls = type(name, (), attributes)
        if "parameters" in entry:
            _sign(cls, entry["parameters"])
        return cls


def _function(entry: dict[str, list[str]]) -> Any:
    def function() -> None: ...

    _sign(function, entry.get("parameters", []))
    return function


def _sign(target: Any, parameters: list[str]) -> None:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    target.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in parameters])
