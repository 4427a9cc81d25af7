"""Can everything be written that a command is to write?

Asked before it runs: what takes minutes is not to be lost for a folder that is missing.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headway.errors import ConfigError, HeadwayError


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Path] = ()) -> None:
    """Raise ConfigError, by option, for a file that cannot be written.

    So for one that another option writes, too, or that is one of the `inputs`. Files are left as
    they are.
    """
    taken = {os.path.realpath(path): "an input" for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        _try(option, path, real)
        if real in taken and not _is_device(path):
            raise ConfigError(option, f"{path} is {taken[real]}, too")
        taken[real] = f"what {option} writes"


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Raise HeadwayError, by option, when the file can after all not be written."""
    try:
        yield
    except OSError as error:
        raise HeadwayError(f"{option}: {path} cannot be written: {error.strerror}") from error


def _is_device(path: Path) -> bool:
    """Whether it is a pipe, a terminal or the like: opening one may take it from its reader."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _try(option: str, path: Path, real: str) -> None:
    try:
        if _is_device(path):
            return
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            Path(real).unlink()
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}"
        raise ConfigError(option, text) from error
