"""What does this vLLM offer of what the scheduler relies on?

`python -m tests_vllm.record` prints it; `tests/vllm_plugin/recorded/` keeps it for each release, so
that the plugin's checks can be tested where there is no vLLM.
"""

import importlib
import inspect
import json
import sys
from typing import Any

import vllm

from headway.vllm_plugin.compat import MEMBERS, fields_of


def recorded() -> dict[str, Any]:
    """Return version and members: parameters of what is callable, fields of classes."""
    members = {}
    for member in MEMBERS:
        found = importlib.import_module(member.module)
        for part in member.name.split("."):
            found = getattr(found, part)
        entry: dict[str, list[str]] = {}
        if callable(found):
            entry["parameters"] = [
                str(p) for p in inspect.signature(found).replace().parameters if p != "self"
            ]
        if member.fields:
            entry["fields"] = sorted(fields_of(found).intersection(member.fields))
        members[f"{member.module}:{member.name}"] = entry
    return {"version": ".".join(vllm.__version__.split(".")[:2]), "members": members}


if __name__ == "__main__":
    json.dump(recorded(), sys.stdout, indent=1, sort_keys=True)
