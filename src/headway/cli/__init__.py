"""The `headway` command."""

import sys

from headway.cli.extras import missing_extra

__all__ = ["main"]


def main() -> None:
    """Run the command line; exits with 0, with 2 after a refused setting, else with 1."""
    try:
        from headway.cli.app import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        extra = missing_extra(error)
        if extra is None:
            raise
        sys.stderr.write(
            f"headway: this command needs {error.name}, which is not installed; "
            f"run: pip install 'headway[{extra}]'\n"
        )
        code = 2
    sys.exit(code)
