"""Is what a simulation cannot do said before it runs, and is nothing lost that has run?"""

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import msgspec
import pytest

from headway.cli.app import run
from headway.cli.scenario_values import scenario_value
from headway.sim.plot import MOST_RUNS
from tests.cli.test_app import headway

SCENARIO = """
name = "mine"
shows = "It is small."
duration_s = 3
drain_s = 1
[nodes]
num_blocks = 512
[[streams]]
name = "s"
tier = "bulk"
prompt_tokens = 3000
arrivals = { kind = "closed", callers = 2 }
"""
TRACE = "arrival_s,prompt_tokens,output_tokens\n0,10,2\n1,10,2\n7,10,2\n8,10,2\n"
INTERRUPT_SECOND = """
import signal
import headway.cli.simulate as command
first = command.run_one
def run_one(*args, **options):
    command.run_one = lambda *args, **options: signal.raise_signal(signal.SIGINT)
    return first(*args, **options)
command.run_one = run_one
"""
FCFS_THEN_VTC = ("--policy", "fcfs", "--policy", "vtc")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The working folder, with two scenarios of one name and a trace."""
    for name in ("mine.toml", "copy.toml"):
        (tmp_path / name).write_text(SCENARIO)
    (tmp_path / "trace.csv").write_text(TRACE)
    with chdir(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--output", "no/such.json"], "--output: no/such.json cannot be written: No such file"),
        (["--output", "."], "--output: . cannot be written: Is a directory"),
        (["--output", "mine.toml"], "--output: mine.toml is an input, too"),
        (["--trace", "trace.csv", "--output", "trace.csv"], "--output: trace.csv is an input"),
        (["--output", "a.html", "--plot", "./a.html"], "--plot: a.html is what --output writes"),
        (["--plot", "no/such.png"], "--plot: no/such.png cannot be written: No such file"),
        (["--plot", "course.pdf"], "--plot: must end in .png or .html, got 'course.pdf'"),
        (["--plan-log", "no/such.log"], "--plan-log: no/such.log cannot be written: No such file"),
        (["--plan-log", "a.log", "--seed", "1", "--seed", "2"], "--plan-log: is of one run, not"),
        (["copy.toml"], "copy.toml: its name is 'mine', as that of mine.toml: results could not"),
        (["mine.toml"], "mine.toml: its name is 'mine', as that of mine.toml"),
        (["--seed", str(2**63)], "--seed"),
        (["--seed", "1", "--seed", "1"], "--seed: 1 is given twice"),
        (["--policy", "fcfs", "--policy", "fcfs"], "--policy: fcfs is given twice"),
        (["--policy", "nobody"], "policy: there is no policy 'nobody'"),
        (
            ["--policy", "fcfs", "--policy", "static-partition", "--set", "nodes.max_num_seqs=2"],
            "mine under static-partition: policy: max_num_seqs is too small to be divided",
        ),
        (["--set", "policy.chunksize=5"], "mine.toml: policy.chunksize: unknown key; did you"),
        (["--set", "policy.chunk_size=5"], "--set policy.chunk_size: is not read by headway"),
        (["--set", "duration_s=1e300"], "mine.toml: scenario.duration_s: expected float <= 3153"),
        (["--set", "nodes.noise=1e6"], "mine.toml: nodes.noise: expected float <= 3"),
        (["--set", "nodes.noise=1e999"], "mine.toml: nodes.noise: must be a finite number"),
        (["--set", "streams.s.callers.x=["], "--set streams.s.callers.x"),
        (["--set", "duration_s.x=1"], "mine.toml: duration_s.x: cannot be set: `duration_s` is no"),
        (["--trace", "missing.csv"], "missing.csv: cannot be read"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    options: list[str], reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert run(["simulate", "mine.toml", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert reason in line
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("option", ["--output", "--plan-log"])
@pytest.mark.parametrize(
    ("file", "setting"),
    [
        ("trace.csv", 'streams.s.arrivals={ kind = "trace", file = "trace.csv" }'),
        ("trace.csv", 'streams.s.prompt_tokens={ kind = "empirical", trace = "trace.csv" }'),
        ("trace.csv", 'streams.s.output_tokens={ kind = "empirical", trace = "trace.csv" }'),
        ("fit.toml", "nodes.cost_model=fit.toml"),
    ],
)
def test_a_file_that_the_scenario_names_is_not_written_over(
    file: str, setting: str, option: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "fit.toml").write_text("base_s = 0.01")
    before = (folder / file).read_bytes()
    assert run(["simulate", "mine.toml", "--set", setting, option, file]) == 2
    assert f"{option}: {file} is an input, too" in capsys.readouterr().err
    assert (folder / file).read_bytes() == before


def test_options_without_a_scenario_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--policy", "fcfs"]) == 2
    assert "scenario: none is named" in capsys.readouterr().err
    assert run(["simulate"]) == 0
    assert "bulk-flood" in capsys.readouterr().out


def test_a_plot_of_too_many_runs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = [f"--seed={seed}" for seed in range(MOST_RUNS + 1)]
    assert run(["simulate", "mine.toml", "--plot=a.png", *seeds]) == 2
    assert f"at most {MOST_RUNS} runs, not {MOST_RUNS + 1}" in capsys.readouterr().err


def test_values_are_those_of_a_scenario_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (
        "--set=duration_s=2e0",
        "--set=nodes.first_limit=null",
        "--set=streams.s.tier=critical",
        '--set=streams.s.arrivals={ kind = "poisson", rate = 2e0 }',
    )
    assert run(["simulate", "mine.toml", *settings, "--output=out.json"]) == 0
    assert "critical" in capsys.readouterr().out
    (report,) = msgspec.json.decode((folder / "out.json").read_bytes())
    assert report["duration_s"] == 2
    assert "trace_rows" not in report


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1e6),
        ("1_000", 1000),
        ("0x10", 16),
        ("010", 8),
        ("[[0, 2.5], [120, 1e1]]", [[0, 2.5], [120, 10.0]]),
        ("{a = 1}", {"a": 1}),
        ("{a: 1}", {"a": 1}),
        ("'x'", "x"),
        ("critical", "critical"),
        ("true", True),
        ("", None),
        ("~", None),
        ("10:30:00", 37_800),
        ("1\nb = 2", "1 b = 2"),
    ],
)
def test_what_is_no_toml_is_yaml(text: str, value: object) -> None:
    assert scenario_value(text, "--set x") == value


def test_rows_of_a_trace_that_were_left_out_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "mine.toml", *FCFS_THEN_VTC, "--trace=trace.csv", "--output=a"]) == 0
    told = "mine, stream s: 2 of the trace's 4 rows were left out, 0 before from_s and 2 after"
    assert capsys.readouterr().out.count(told) == 1
    for report in msgspec.json.decode((folder / "a").read_bytes()):
        left_out = {"num_rows": 4, "num_before": 0, "num_after": 2, "num_cut": 0}
        assert report["trace_rows"] == {"s": left_out}


def test_answers_of_a_trace_that_were_cut_are_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = ("--trace=trace.csv", "--set=streams.s.max_tokens=1", "--set=duration_s=8")
    assert run(["simulate", "mine.toml", *cut]) == 0
    out = capsys.readouterr().out
    assert "mine, stream s: 3 of the trace's answers were cut to max_tokens" in out
    assert run(["simulate", "mine.toml", *cut[::2]]) == 0
    assert "cut" not in capsys.readouterr().out


def test_what_has_run_is_kept_when_a_later_run_is_interrupted(folder: Path) -> None:
    options = (*FCFS_THEN_VTC, "--output=a.json", "--plot=a.html")
    done = headway("simulate", "mine.toml", *options, folder=folder, code=INTERRUPT_SECOND)
    assert done.returncode == 130, done.stderr
    assert "stopped when 1 of 2 runs had ended, whose results are kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert "fcfs" in done.stdout
    (report,) = msgspec.json.decode((folder / "a.json").read_bytes())
    assert report["policy"] == "fcfs"
    assert "<table>" in (folder / "a.html").read_text(encoding="utf-8")


def test_what_has_run_is_kept_when_a_later_run_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prompt of 3,000 tokens does not fit into 0.3 of 512 blocks."""
    policies = ("--policy=fcfs", "--policy=static-partition")
    assert run(["simulate", "mine.toml", *policies, "--output=a.json"]) == 2
    shown = capsys.readouterr()
    assert "stopped when 1 of 2 runs had ended" in shown.err
    assert "a request of 3064 tokens never fits" in shown.err
    assert "fcfs" in shown.out
    assert len(msgspec.json.decode((folder / "a.json").read_bytes())) == 1


@pytest.mark.parametrize("shows", ["a[/b]c", "[red]a[/red] :smile: [1]"])
def test_what_a_scenario_says_of_itself_is_no_markup(
    shows: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "mine.toml", f"--set=shows='{shows}'"]) == 0
    out = capsys.readouterr().out
    assert f"mine: {shows}\n" in out
    assert "headway" in out


def test_figures_are_shown_when_they_cannot_be_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", "mine.toml", "--output=/dev/full", "--plot=a.html"]) == 1
    shown = capsys.readouterr()
    assert "--output: /dev/full cannot be written: No space left on device" in shown.err
    assert "mine: It is small." in shown.out
    assert (folder / "a.html").exists()
