"""Which port can be listened on?"""

from headway.errors import ConfigError
from headway.wire.listen import open_socket


def bindable_port(host: str, port: int, path: str) -> int:
    """Return `port`, or a free one for 0. Raises ConfigError at `path` when it cannot be had."""
    try:
        with open_socket(host, port) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ConfigError(path, f"cannot listen on {host}:{port}: {error.strerror}") from error
