"""What do simulated runs look like, side by side?"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib import import_module
from io import BytesIO
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from headway.errors import ConfigError
from headway.sim.measures import RunReport
from headway.sim.report import COLUMNS, RUN_COLUMNS, notes, rows, run_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#c1121f", "#e09f3e", "#6c7a89", "#335c67")
SUFFIXES = (".png", ".html")
MOST_RUNS = 100
"""Side by side in one image; it cannot be wider than 65,536 pixels."""


def check_plot(path: Path, num_runs: int) -> None:
    """Raise ConfigError for a file that is neither of `SUFFIXES`, or for too many runs.

    Raises ModuleNotFoundError when what draws is not installed.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError("--plot", f"must end in {' or '.join(SUFFIXES)}, got {path.name!r}")
    if num_runs > MOST_RUNS:
        raise ConfigError("--plot", f"shows at most {MOST_RUNS} runs, not {num_runs}")
    import_module("matplotlib")


def write_plot(runs: Sequence[RunReport], path: Path) -> None:
    """Write the runs' courses as a PNG, or as one page that needs nothing else, with figures."""
    if path.suffix == ".png":
        path.write_bytes(draw_png(runs))
        return
    names = ", ".join(_by_scenario(runs))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>headway: {escape(names)}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem }}
img {{ max-width: 100% }} table {{ border-collapse: collapse; margin-bottom: 2rem }}
th, td {{ border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: right }}
</style></head><body>
{"".join(_section(name, own) for name, own in _by_scenario(runs).items())}</body></html>
"""
    path.write_text(page, encoding="utf-8")


def _by_scenario(runs: Sequence[RunReport]) -> dict[str, list[RunReport]]:
    """Return the runs of each scenario, by its name; figures are compared within one."""
    found: dict[str, list[RunReport]] = {}
    for run in runs:
        found.setdefault(run.scenario, []).append(run)
    return found


def _section(name: str, runs: Sequence[RunReport]) -> str:
    image = b64encode(draw_png(runs)).decode()
    course = f"{escape(name)}: TTFT, tokens per second and requests waiting over time"
    return f"""<h1>{escape(name)}</h1>
<img alt="{course}" src="data:image/png;base64,{image}">
{_table(COLUMNS, rows(runs))}
{_table(RUN_COLUMNS, run_rows(runs))}
{"".join(f"<p>{escape(note)}</p>" for note in notes(runs))}
"""


def draw_png(runs: Sequence[RunReport]) -> bytes:
    """Return a column for each run: TTFT, tokens per second and requests waiting over time."""
    # Heavy and only for plots; the backend that needs no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(6.0, 5.0 * len(runs)), 9), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, len(runs), sharex="col", sharey="row", squeeze=False)
    for column, run in enumerate(runs):
        _draw_run(run, list(grid[:, column]))
    for axis, label in zip(
        grid[:, 0], ("TTFT p99 (s)", "tokens/s", "requests waiting"), strict=True
    ):
        axis.set_ylabel(label)
    handles, labels = grid[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)))
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _draw_run(run: RunReport, axes: "Sequence[Axes]") -> None:
    axes[0].set_title(f"{run.scenario}: {run.policy}, seed {run.seed}", fontsize=10)
    axes[0].set_yscale("log")
    axes[2].set_yscale("symlog")
    axes[2].set_xlabel("virtual seconds")
    for rank, tier in enumerate(run.tiers):
        course = run.course[rank]
        colour = _COLOURS[rank % len(_COLOURS)]
        ttft_s = [nan if value is None else value for value in course.ttft_p99_s]
        shown: tuple[Sequence[float], ...] = (ttft_s, course.tokens_per_s, course.waiting)
        # Where few requests come, a TTFT has no neighbour that a line could lead to.
        axes[0].plot(run.course_s, ttft_s, color=colour, marker=".", markersize=4, linestyle="")
        for axis, values in zip(axes, shown, strict=True):
            axis.plot(run.course_s, values, color=colour, label=tier.tier, linewidth=1.2)
            axis.grid(visible=True, which="major", alpha=0.3)


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
