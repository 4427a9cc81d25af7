"""Which commands are there, and how do they end?"""

import sys
from collections.abc import Sequence
from functools import cache

import typer

from headway import __version__
from headway.cli import check_config, demo, engine, gateway, serve
from headway.errors import ConfigError, HeadwayError, ModelLoadError

EXIT_FAILED = 1
EXIT_REFUSED = 2

app = typer.Typer(
    name="headway",
    help="Request-level quality of service for LLM serving.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
app.command("serve")(serve.serve)
app.command("engine")(engine.engine)
app.command("gateway")(gateway.gateway)
app.command("check-config")(check_config.check_config)
app.command("demo")(demo.demo)

LIGHT = ("gateway", "check-config")
"""Commands that need the gateway's requirements alone, as they are installed beside vLLM."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headway {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version."
    ),
) -> None:
    """Request-level quality of service for LLM serving."""


@cache
def _load_others() -> None:
    """Add the commands that need numpy and scipy."""
    from headway.cli import bench_commands, simulate

    app.command("simulate")(simulate.simulate)
    app.add_typer(bench_commands.app, name="bench")


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; a refusal is one line on stderr."""
    if not arguments or arguments[0] not in LIGHT:
        _load_others()
    try:
        result = app(list(arguments), prog_name="headway", standalone_mode=False)
    except typer.TyperException as error:
        return _refuse(error.format_message())
    except typer.Abort:
        return EXIT_FAILED
    except (ConfigError, ModelLoadError) as error:
        return _refuse(str(error))
    except HeadwayError as error:
        return _refuse(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        return 130
    return result if isinstance(result, int) else 0


def _refuse(message: str, code: int = EXIT_REFUSED) -> int:
    sys.stderr.write(f"headway: {message}\n")
    return code
