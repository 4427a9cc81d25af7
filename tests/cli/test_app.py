"""Is every refusal one line with exit code 2, and never a traceback?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway import __version__
from headway.cli.extras import missing_extra
from headway.config import load_config
from headway.core.tier import Tiers
from headway.wire.listen import open_socket

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "headway.yaml"


def headway(
    *arguments: str, folder: Path, code: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder`, after `code` has run in its process."""
    start = f"{code}\nfrom headway.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["check-config"], "headway.yaml: no such file here"),
        (["check-config", "missing.yaml"], "missing.yaml: cannot be read"),
        (["serve", "--config", "missing.yaml"], "missing.yaml: cannot be read"),
        (["serve", "--prot", "1"], "No such option: --prot"),
        (["serve", "--port", "x"], "--port"),
        (["serve", "--port", "70000"], "gateway.port: expected int <= 65535"),
        (["serve", "--policy", "lifo"], "gateway.policy: invalid enum value 'lifo'; allowed: qos"),
        (["serve", "--host", "0.0.0.0"], "gateway.host"),
        (["serve", "--set", "port"], "--set: must be KEY=VALUE"),
        (["serve", "--set", "gateway.prot=1"], "did you mean 'port'"),
        (["serve", "--set", "gateway.port=[1"], "--set gateway.port"),
        (["gateway"], "nodes: none configured"),
        (["engine", "--set", "engine.max_num_seqs=0"], "engine.max_num_seqs"),
        (["bench", "isolation", "--warmup", "200"], "--warmup: must be below --duration"),
        (["bench", "isolation", "--critical-from", "120"], "--critical-from: must be below"),
        (["launch"], "No such command 'launch'"),
    ],
)
def test_refusals_are_one_line_and_code_2(
    arguments: list[str], reason: str, tmp_path: Path
) -> None:
    done = headway(*arguments, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("headway: ")
    assert reason in lines[0]


@pytest.mark.parametrize("command", ["engine", "serve"])
def test_a_model_that_cannot_be_loaded_ends_the_command_and_its_supervisor(
    command: str, tmp_path: Path
) -> None:
    done = headway(command, "--port", "0", "--model", "missing-model", folder=tmp_path)
    assert done.returncode == 2
    assert "headway: no model at 'missing-model'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        done = headway("serve", folder=tmp_path, PORT=str(port))
    assert done.returncode == 2
    assert done.stderr == (
        f"headway: gateway.port: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    )


def test_a_server_that_does_not_answer_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    with open_socket("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    done = headway("bench", "isolation", "--url", f"http://127.0.0.1:{port}", folder=tmp_path)
    assert done.returncode == 1
    assert f"http://127.0.0.1:{port}/v1/models does not answer" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    done = headway("serve", folder=tmp_path, code="import sys; sys.modules['typer'] = None")
    assert done.returncode == 2
    assert done.stderr.endswith("run: pip install 'headway[gateway]'\n")
    assert missing_extra(ModuleNotFoundError(name="torch")) == "engine"
    assert missing_extra(ModuleNotFoundError(name="matplotlib.figure")) == "bench"
    assert missing_extra(ModuleNotFoundError(name="headway.nothing")) is None
    assert missing_extra(ModuleNotFoundError("no name")) is None


def test_a_gateway_needs_the_gateway_extra_alone(tmp_path: Path) -> None:
    others = "numpy scipy torch gguf jinja2 safetensors tokenizers matplotlib"
    without = f"import sys; sys.modules.update(dict.fromkeys('{others}'.split()))"
    done = headway("gateway", folder=tmp_path, code=without)
    assert "nodes: none configured" in done.stderr


def test_version_and_help(tmp_path: Path) -> None:
    assert headway("--version", folder=tmp_path).stdout == f"headway {__version__}\n"
    shown = headway("--help", folder=tmp_path)
    assert shown.returncode == 0
    for command in ("serve", "engine", "gateway", "check-config", "demo", "bench"):
        assert f"\n  {command} " in shown.stdout


def test_check_config_says_what_a_file_amounts_to(tmp_path: Path) -> None:
    keys = {"HEADWAY_KEY_SHOP": "shop-secret", "HEADWAY_KEY_NIGHTLY": "night-secret"}
    done = headway("check-config", str(EXAMPLE), folder=tmp_path, **keys)
    assert done.returncode == 0, done.stderr
    for part in ("good", "127.0.0.1:8000, policy qos", "gpu-0 at http://10.0.0.5:8000", "shop"):
        assert part in done.stdout
    assert "secret" not in done.stdout


def test_a_file_of_the_usual_name_is_found_and_set_wins(tmp_path: Path) -> None:
    (tmp_path / "headway.yaml").write_text("gateway: {port: 1234}\n")
    found = headway("check-config", folder=tmp_path)
    assert "127.0.0.1:1234" in found.stdout
    assert "open mode" in found.stdout
    set_ = headway("check-config", "--set", "gateway.port=99", folder=tmp_path)
    assert "127.0.0.1:99," in set_.stdout


def test_the_reference_names_every_section(tmp_path: Path) -> None:
    shown = headway("check-config", "--reference", folder=tmp_path).stdout
    assert shown.count("| key | type | default | meaning |") == 5


def test_the_defaults_need_no_file() -> None:
    assert load_config(None).tiers == Tiers()
