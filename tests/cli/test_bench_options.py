"""Is what a measurement cannot do said before minutes are spent on it?"""

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from headway.cli.app import run
from headway.sim.cost_model import cost_model
from tests.bench.test_fit import TRUE, logged, write_log


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The working folder, with a step log."""
    write_log(tmp_path / "steps.jsonl", logged(1000, 0.02))
    with chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("fit --output no/such.toml", "--output: no/such.toml cannot be written"),
        ("fit --log steps.jsonl --output steps.jsonl", "--output: steps.jsonl is an input, too"),
        ("fit --log missing.jsonl", "missing.jsonl: cannot be read: No such file"),
        ("fit --log .", ".: cannot be read: Is a directory"),
        ("fit --log steps.jsonl --set engine.max_num_seqs=8", "--set: is for the engine"),
        ("fit --set engine.max_num_sequences=8", "engine.max_num_sequences: unknown key"),
        ("fit --duration nan", "'--duration': Input should be greater"),
        ("fit --duration inf", "--duration: must be at most 86400 s, got inf"),
        ("agreement --json no/such.json", "--json: no/such.json cannot be written"),
        ("agreement --log missing.jsonl", "missing.jsonl: cannot be read"),
        ("agreement --log steps.jsonl --json steps.jsonl", "--json: steps.jsonl is an input"),
        ("agreement --duration inf", "--duration: must be at most 86400 s, got inf"),
        ("agreement --duration 99.5 --log missing.jsonl", "--duration: must be whole seconds"),
        ("agreement --warmup 0.5 --log missing.jsonl", "--warmup: must be whole seconds"),
        ("agreement --grace 1e300", "--grace: must be at most 86400 s, got 1e+300"),
        ("agreement --critical-every inf", "--critical-every: must be at most 86400 s, got inf"),
        ("agreement --critical-every 80000", "--critical-every: no critical request comes"),
        ("agreement --set engine.num_kv_blocks=null", "engine.num_kv_blocks: must be set by"),
        ("agreement --set engine={max_num_seqs: 8}", "engine.max_num_seqs: must be set by itself"),
        ("agreement --set engine.block_size=512", "engine.block_size: expected int <= 256"),
        ("isolation --json no/such.json", "--json: no/such.json cannot be written"),
        ("isolation --png a --html a", "--html: a is what --png writes, too"),
        ("isolation --grace inf", "--grace: must be at most 86400 s, got inf"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(
    arguments: str, reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, space, setting = arguments.partition(" --set ")
    options = [*head.split(), *(["--set", setting] if space else [])]
    assert run(["bench", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert reason in line
    assert [path.name for path in folder.iterdir()] == ["steps.jsonl"]


def test_a_log_is_fitted_and_the_model_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "fit", "--log", "steps.jsonl", "--output", "model.toml"]) == 0
    assert capsys.readouterr().out == (folder / "model.toml").read_text()
    (regime,) = cost_model("model.toml").regimes
    assert regime.base_s == pytest.approx(TRUE.base_s, rel=0.05)


def test_a_fit_is_shown_when_it_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "fit", "--log", "steps.jsonl", "--output", "/dev/full"]) == 1
    shown = capsys.readouterr()
    assert "base_s = " in shown.out
    assert "--output: /dev/full cannot be written: No space left on device" in shown.err
