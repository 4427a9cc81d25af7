"""Which settings do the command line, the environment and the file together mean?"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headway.config import Config, load_config
from headway.config.source import parse_yaml
from headway.errors import ConfigError

DEFAULT_FILE = Path("headway.yaml")

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; ./headway.yaml if it is there."),
]
HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
PortOption = Annotated[int | None, typer.Option("--port", help="Port to listen on; 0: any free.")]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Model folder, GGUF file or `smollm2-135m`.")
]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="`qos` by tier, or `fcfs` first come first served.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as engine.max_num_seqs=16."),
]


def find_file(chosen: Path | None) -> Path | None:
    """Return the chosen file, else ./headway.yaml when there is one."""
    if chosen is not None:
        return chosen
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def overrides(
    pairs: Sequence[str] | None,
    options: Mapping[str, object],
    read: Callable[[str, str], object] = parse_yaml,
) -> dict[str, object]:
    """Return what wins over the file: `--set` pairs, then the options that are not None.

    `read` returns what a text means; it is also told where the text comes from. Raises ConfigError
    for a pair without `=` or with a value that is not readable.
    """
    values: dict[str, object] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ConfigError("--set", f"must be KEY=VALUE, got {pair!r}")
        values[key.strip()] = read(text, f"--set {key}")
    values.update({key: value for key, value in options.items() if value is not None})
    return values


def load(file: Path | None, pairs: Sequence[str] | None, options: Mapping[str, object]) -> Config:
    """Return the checked configuration. Raises ConfigError."""
    return load_config(find_file(file), overrides(pairs, options))
