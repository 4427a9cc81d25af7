"""How does a child process end with its parent, even when the parent is killed?"""

import ctypes
import os
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def dies_with_parent(signum: int = signal.SIGKILL) -> Callable[[], None]:
    """Return a `preexec_fn` after which the kernel sends `signum` when this process ends.

    Linux only; elsewhere it does nothing. The call must come from the main thread, since the kernel
    watches the thread that forked.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    parent = os.getpid()

    def in_child() -> None:
        if prctl is None:
            return
        prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        # The parent may have ended before the call; then no signal ever comes.
        if os.getppid() != parent:
            os._exit(1)

    return in_child
