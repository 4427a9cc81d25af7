"""Does a page show each scenario by itself?"""

from pathlib import Path

from headway.sim.plot import write_plot
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
