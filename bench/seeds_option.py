"""How many seeds is a measurement of the simulator repeated with?"""

from argparse import ArgumentParser, ArgumentTypeError


def add_seeds(parser: ArgumentParser) -> None:
    """Add `--seeds`; without one nothing would be measured, and everything be met."""
    parser.add_argument("--seeds", type=_at_least_one, default=3)


def _at_least_one(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return number
