"""When may a process stop to look for garbage?

Objects go when nobody refers to them any more; only cycles wait for the collector. A full
collection stops the process to look at every object: with 4,000 requests open in the gateway for
0.25 s, each ten seconds, and finds nothing, since the cycles that there are go while young.
"""

import gc

FULL_AFTER = 10_000
"""Collections of the middle generation before a full one, which takes minutes to hours of load."""


def collect_rarely() -> None:
    """Never look again at what is loaded by now, and at the rest only rarely all at once."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_AFTER)
