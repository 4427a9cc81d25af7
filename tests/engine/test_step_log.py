"""Does the step log hold each step, as `headway bench fit` reads it?"""

from pathlib import Path

import pytest

from headway.bench.fit import read_log
from headway.clock import ManualClock
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.sampling_params import SamplingParams
from headway.engine.step_log import step_log
from headway.errors import ConfigError


def test_each_step_is_a_line(tmp_path: Path) -> None:
    engine = LLMEngine.from_parts(FakeRunner(), ByteTokenizer(), clock=ManualClock())
    log = tmp_path / "steps.jsonl"
    engine.add_request("a", [1, 2, 3, 4], SamplingParams(max_tokens=3, ignore_eos=True))
    with step_log(log) as engine.on_step:
        while engine.has_unfinished():
            engine.step()
        engine.step()
    steps = read_log(log)
    assert [step.num_tokens for step in steps] == [4, 1, 1]
    assert [step.num_prefills for step in steps] == [1, 0, 0]
    assert [step.decode_context for step in steps] == [0, 4, 5]
    assert [step.more for step in steps] == [True, True, False]


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    unwritable = step_log(tmp_path / "missing" / "steps.jsonl")
    with pytest.raises(ConfigError, match=r"engine\.step_log"), unwritable:
        pass


def test_a_full_disk_ends_the_log_and_not_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    engine = LLMEngine.from_parts(FakeRunner(), ByteTokenizer(), clock=ManualClock())
    engine.add_request("a", [1, 2, 3, 4], SamplingParams(max_tokens=3, ignore_eos=True))
    outputs = []
    with step_log(Path("/dev/full")) as engine.on_step:
        while engine.has_unfinished():
            outputs += engine.step()
    assert outputs[-1].finished
    assert sum(len(choice.token_ids) for each in outputs for choice in each.choices) == 3
    assert [record.message for record in caplog.records] == [
        "the step log /dev/full ends here: No space left on device"
    ]
