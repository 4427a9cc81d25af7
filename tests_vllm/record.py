"""What does this vLLM offer of what the scheduler relies on?

`python -m tests_vllm.record` prints it; `tests/vllm_plugin/recorded/` keeps it for each release, so
that the plugin's checks can be tested where there is no vLLM.
"""

import json
import sys
from collections.abc import Collection
from typing import Any

import vllm

from headway.vllm_plugin.interface import Found, look_up
from headway.vllm_plugin.members import MEMBERS, Member


def recorded() -> dict[str, Any]:
    """Return version and members, with what is looked at of each."""
    members = {}
    for member in MEMBERS:
        found = look_up(member)
        assert found is not None, member.full_name
        members[f"{member.module}:{member.name}"] = _entry(member, found)
    return {"version": ".".join(vllm.__version__.split(".")[:2]), "members": members}


def _entry(member: Member, found: Found) -> dict[str, Any]:
    """Return what is found of a member, as far as it is relied on."""
    called = {name for name, _ in member.calls}
    entry: dict[str, Collection[Any] | str | bool] = {
        "parameters": [
            name for name in found.parameters if member.overridden or name in member.parameters
        ],
        "open_ended": bool(member.parameters) and found.open_ended,
        "fields": sorted(found.fields.intersection(member.fields)),
        "abstract": sorted(found.abstract) if member.implemented else [],
        "reads": {name: number for name, number in found.reads.items() if name in called},
        "returns": found.returns if member.returns else "",
    }
    return {kind: value for kind, value in entry.items() if value}


if __name__ == "__main__":
    json.dump(recorded(), sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
