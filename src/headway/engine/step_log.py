"""What did each step compute, and how long did it take?

One JSON object a line, written when the step has ended: what `headway bench fit` fits a step time
to. Its keys are the fields of `StepRecord` and of `core.predictor.StepFeatures`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headway.core.predictor import StepFeatures
from headway.errors import ConfigError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step that has ended. Times in seconds of the engine's clock."""

    at_s: float
    """When it was planned."""
    step_s: float
    """Planning, computing and making text of the tokens."""
    more: bool
    """Whether work was left when it ended."""
    features: StepFeatures


@contextmanager
def step_log(path: Path) -> Iterator[Callable[[StepRecord], None]]:
    """Yield what writes a step to the file, which is begun anew. Raises ConfigError.

    Every line is written at once, so that a killed engine leaves whole lines. Once one cannot be
    written, as on a full disk, the log says so and ends; the engine goes on.
    """
    try:
        file = path.open("wb", buffering=0)
    except OSError as error:
        raise ConfigError("engine.step_log", f"{path}: {error.strerror}") from error

    failed = False

    def write(record: StepRecord) -> None:
        nonlocal failed
        line = {"at_s": record.at_s, "step_s": record.step_s, "more": record.more}
        try:
            if not failed:
                file.write(msgspec.json.encode({**line, **record.features._asdict()}) + b"\n")
        except OSError as error:
            failed = True
            logger.error("the step log %s ends here: %s", path, error.strerror)

    with file:
        yield write
