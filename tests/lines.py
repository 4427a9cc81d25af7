"""How many lines of ours does an action run?

Lines, not time: the same on every machine. What a line does inside of C, such as sorting a list, is
not seen; times are measured by `bench/test_core.py`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import headway

PACKAGE = str(Path(headway.__file__).parent)


def lines_run(action: Callable[[], object], part: str = "") -> int:
    """Return how many lines of headway, or of this part of it, `action` runs."""
    prefix = str(Path(PACKAGE, part))
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(prefix):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count
