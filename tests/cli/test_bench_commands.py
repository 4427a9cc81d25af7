"""Do the measurements run from the command line against any server?"""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from signal import SIGINT

import msgspec

from headway.gateway.fake_answers import Behaviour
from headway.gateway.fake_node import FakeNode

TOKENS = tuple(f"t{index} " for index in range(128))


def bench(folder: Path, *arguments: str) -> tuple[str, FakeNode]:
    """Run a measurement of a fake node in `folder`; return what it printed."""

    async def scenario() -> tuple[str, FakeNode]:
        node = FakeNode(behaviour=Behaviour(tokens=TOKENS, first_token_s=0.01))
        await node.start()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", "bench", *arguments, "--url", node.url),
            cwd=folder,
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        await node.wait_for(lambda: node.running == 0)
        await node.stop()
        return out.decode(), node

    return asyncio.run(scenario())


def test_isolation_writes_figures_plot_and_page(tmp_path: Path) -> None:
    out, node = bench(
        tmp_path,
        "isolation",
        "--vllm-priority",
        *("--duration=0.5", "--warmup=0", "--grace=5", "--bulk-callers=3"),
        *("--critical-every=0.05", "--json=r.json", "--png=r.png", "--html=r.html"),
    )
    assert "bulk work gets" in out
    assert "times that without other load" in out
    report = msgspec.json.decode((tmp_path / "r.json").read_bytes())
    assert [phase["phase"] for phase in report["phases"]] == ["unloaded", "bulk-alone", "flood"]
    assert report["phases"][2]["tiers"]["critical"]["num_errors"] == 0
    assert report["phases"][2]["tiers"]["critical"]["output_tokens_mean"] == 32
    assert report["verdicts"][0]["bulk_share"] > 0
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    assert "<table>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    sent = [(r.header("x-priority")[0], r.json()["priority"]) for r in node.received]
    assert set(sent) == {("critical", -1), ("bulk", 1)}


def test_phases_that_have_ended_are_kept_when_a_later_one_is_interrupted(tmp_path: Path) -> None:
    """The node answers nobody from the second phase on, so that the third cannot end."""
    options = ("--duration=0.5", "--warmup=0", "--grace=600", "--critical-every=0.05", "--repeat=2")
    outputs = ("--json=r.json", "--png=r.png")

    async def scenario() -> tuple[int | None, str, str]:
        node = FakeNode(behaviour=Behaviour(tokens=TOKENS))
        await node.start()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", "bench", "isolation", "--url", node.url),
            *(*options, *outputs),
            cwd=tmp_path,
            stdout=PIPE,
            stderr=PIPE,
        )
        assert process.stderr is not None
        said = ""
        while "flood" not in said:
            if "bulk-alone" in said:
                node.behaviour = Behaviour(gate=asyncio.Event())
            line = await process.stderr.readline()
            assert line, said
            said += line.decode()
        await node.wait_for(lambda: node.running > 0)
        process.send_signal(SIGINT)
        out, err = await process.communicate()
        await node.wait_for(lambda: node.running == 0)
        await node.stop()
        return process.returncode, out.decode(), said + err.decode()

    code, out, err = asyncio.run(scenario())
    assert code == 130, err
    assert "stopped when 2 of 6 phases had ended, whose results are kept" in err
    assert "Traceback" not in err
    assert "unloaded" in out
    report = msgspec.json.decode((tmp_path / "r.json").read_bytes())
    assert [phase["phase"] for phase in report["phases"]] == ["unloaded", "bulk-alone"]
    assert not (tmp_path / "r.png").exists(), "there is nothing of a flood to draw"


def test_engine_speed_prints_both_figures(tmp_path: Path) -> None:
    sizes = ("--concurrency=4", "--prompt-tokens=50", "--output-tokens=8", "--rounds=1")
    out, node = bench(tmp_path, "engine-speed", *sizes)
    assert "ms per token" in out
    assert "4 at once" in out
    assert node.peak == 4
