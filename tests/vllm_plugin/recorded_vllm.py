"""Which vLLM does a test pretend is installed?"""

import json
from pathlib import Path
from typing import Any

from headway.vllm_plugin.interface import Found
from headway.vllm_plugin.members import Member

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


class RecordedVllm:
    """The interface of one vLLM release, as far as it was recorded (`tests_vllm/record.py`)."""

    def __init__(self, path: Path) -> None:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        self.version: str = recorded["version"]
        self.members: dict[str, dict[str, Any]] = recorded["members"]

    def look(self, member: Member) -> Found | None:
        """Return what was recorded of a member; None: nothing."""
        entry = self.members.get(key(member))
        if entry is None:
            return None
        return Found(
            parameters=tuple(entry.get("parameters", ())),
            open_ended=entry.get("open_ended", False),
            fields=frozenset(entry.get("fields", ())),
            abstract=frozenset(entry.get("abstract", ())),
            reads=entry.get("reads", {}),
            returns=entry.get("returns", ""),
        )


def key(member: Member) -> str:
    """Return the name under which a member is recorded."""
    return f"{member.module}:{member.name}"
