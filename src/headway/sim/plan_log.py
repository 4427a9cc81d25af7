"""Which decisions did a run take, line by line?

Two runs of one scenario, policy and seed write the same bytes (G10).
"""

from types import TracebackType
from typing import TextIO

from headway.sim.call import Call
from headway.sim.scheduler import SimStep


class PlanLog:
    """A text file of steps and ends. Times are written in full."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def step(self, now: float, node: int, step: SimStep, took_s: float) -> None:
        """A node begins a step."""
        f = step.features
        self._file.write(
            f"{now!r} step node={node} tokens={step.num_tokens} decodes={f.num_decodes} "
            f"prefills={f.num_prefills} context={f.decode_context}+{f.prefill_context} "
            f"took={took_s!r}\n"
        )

    def end(self, now: float, call: Call) -> None:
        """A request ends."""
        self._file.write(f"{now!r} end {call.request_id} {call.outcome} {call.num_tokens}\n")

    def __enter__(self) -> "PlanLog":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
