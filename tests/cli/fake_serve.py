"""A supervisor over fake children, as its own process. Its argument is JSON: what to run."""

import asyncio
import json
import sys
from pathlib import Path

from headway.cli.supervisor import Backoff, ChildSpec, Supervisor

CHILD = str(Path(__file__).with_name("fake_child.py"))


def main() -> None:
    """Run it; exits with the supervisor's code."""
    settings = json.loads(sys.argv[1])
    specs = [
        ChildSpec(
            name=name,
            argv=(sys.executable, "-S", CHILD, name, str(settings["port"]), mode),
            health_url=f"{settings['health']}/{name}",
            stop_timeout_s=settings["stop_timeout_s"],
        )
        for name, mode in settings["children"].items()
    ]
    supervisor = Supervisor(
        specs,
        say=_say,
        on_ready=lambda: _say("READY"),
        backoff=Backoff(**settings["backoff"]),
        same_signal_s=settings["same_signal_s"],
    )
    sys.exit(asyncio.run(supervisor.run()))


def _say(message: str) -> None:
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
