"""A process to be supervised: tells the test what happens to it, over a socket that shows its end.

Arguments: name, port of the test, mode. Modes: `orderly` ends on SIGTERM, `hold` ends on SIGTERM
once the test has said so, `stubborn` never ends on it, `exit:N` ends at once with code N.
"""

import os
import signal
import socket
import sys


def main() -> None:
    """Connect, then obey."""
    name, port, mode = sys.argv[1:]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with socket.create_connection(("127.0.0.1", int(port))) as test:

        def tell(what: str) -> None:
            test.sendall(f"{name} {what} {os.getpid()}\n".encode())

        tell("started")
        if mode.startswith("exit:"):
            sys.exit(int(mode.removeprefix("exit:")))
        while True:
            signal.sigwait({signal.SIGTERM})
            tell("term")
            if mode == "hold":
                test.recv(1)
            if mode != "stubborn":
                tell("bye")
                return


if __name__ == "__main__":
    main()
