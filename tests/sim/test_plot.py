"""Does a page show each scenario by itself, and a plot each point of its course?"""

from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.image import imread

from headway.sim.plot import draw_png, write_plot
from headway.sim.run import simulate
from tests.sim.small import CRITICAL, scenario


def test_each_scenario_has_its_heading_its_plot_and_its_tables(tmp_path: Path) -> None:
    runs = [
        simulate(scenario(CRITICAL, name=name, duration_s=3, drain_s=1), policy)
        for name in ("quiet", "busy")
        for policy in ("headway", "fcfs")
    ]
    page = tmp_path / "page.html"
    write_plot(runs, page)
    before, quiet, busy = page.read_text(encoding="utf-8").split("<h1>")
    assert "<title>headway: quiet, busy</title>" in before
    for name, part in (("quiet", quiet), ("busy", busy)):
        assert part.startswith(f"{name}</h1>")
        assert part.count("<img") == 1
        assert part.count("<table>") == 2
        assert part.count("<td>fcfs</td>") == 2, "a row of one tier, and one of the run"


def test_a_ttft_between_seconds_without_one_is_seen(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{second},100,2\n" for second in range(0, 20, 4))
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    lone = {**CRITICAL, "arrivals": {"kind": "trace", "file": str(trace)}}
    run = simulate(scenario(lone, duration_s=20, drain_s=1), "headway")
    pixels = imread(BytesIO(draw_png([run])))[:, :, :3]
    reds = np.abs(pixels - np.array([0xC1, 0x12, 0x1F]) / 255).max(axis=2) < 0.05
    assert reds[: len(reds) // 3].sum() >= 5 * 4, "in the uppermost of the three plots"
