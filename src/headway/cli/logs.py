"""Where do the log lines of a server go?"""

import logging


def log_to_stderr(name: str) -> None:
    """Write this process's log lines to stderr, each with its time and the process's name."""
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s {name} %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
