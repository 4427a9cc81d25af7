"""An engine process without a model, for tests of signals: `python -m ... PORT DRAIN_S`."""

import asyncio
import sys
import time
from collections.abc import Sequence

from headway.config import EngineConfig
from headway.engine.async_engine import AsyncEngine
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.generation import ServerOptions
from headway.engine.runner import SequenceSlice, StepResult
from headway.engine.serve import serve_engine

STEP_S = 0.005


class SlowRunner(FakeRunner):
    """A `FakeRunner` whose steps take a while, as a model's do."""

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """Take `STEP_S`, then compute."""
        time.sleep(STEP_S)
        return super().execute(slices, copies)


def main() -> None:
    """Serve until a signal, then say so."""
    engine = AsyncEngine(LLMEngine.from_parts(SlowRunner(num_blocks=512), ByteTokenizer()))
    config = EngineConfig(port=int(sys.argv[1]))
    options = ServerOptions(model_name="fake")
    asyncio.run(serve_engine(engine, config, options, drain_s=float(sys.argv[2])))
    sys.stdout.write("stopped in order\n")


if __name__ == "__main__":
    main()
