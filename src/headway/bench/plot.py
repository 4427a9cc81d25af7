"""How does time to first token look over time, with the runs side by side?"""

from base64 import b64encode
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from headway.bench.isolation import FLOOD, IsolationReport, PhaseReport
from headway.bench.report import COLUMNS, rows

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_COLOURS = {"critical": "#c1121f", "normal": "#e09f3e", "bulk": "#6c7a89"}
_OTHER_COLOUR = "#335c67"


def write_png(report: IsolationReport, path: Path) -> None:
    """Write the plot of each run's first flood. Raises ValueError when there was no flood."""
    path.write_bytes(draw_png(report))


def write_html(report: IsolationReport, path: Path) -> None:
    """Write one page that needs nothing else: the plot and the figures."""
    image = b64encode(draw_png(report)).decode()
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(report)
    )
    load = report.load
    every = "none" if load.critical_every_s is None else f"one each {load.critical_every_s:g} s"
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>headway: isolation</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem }}
img {{ max-width: 100% }} table {{ border-collapse: collapse; width: 100% }}
th, td {{ border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: right }}
th:nth-child(-n+3), td:nth-child(-n+3) {{ text-align: left }}
</style></head><body>
<h1>Critical requests in a flood of bulk work</h1>
<p>{load.bulk_callers} bulk callers in a closed loop ({load.bulk.num_prompt_tokens} tokens in,
{load.bulk.num_output_tokens} out); critical requests ({load.critical.num_prompt_tokens} in,
{load.critical.num_output_tokens} out) at random, {every}. {escape(report.machine)}.</p>
<img alt="Time to first token over time, by tier" src="data:image/png;base64,{image}">
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
</body></html>
"""
    path.write_text(page, encoding="utf-8")


def draw_png(report: IsolationReport) -> bytes:
    """Return the plot as PNG bytes. Raises ValueError when there was no flood."""
    floods = [phase for phase in report.phases if phase.phase == FLOOD and phase.repeat == 0]
    if not floods:
        raise ValueError("no flood was measured")
    # Heavy and only for plots; the backend that needs no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5 * len(floods), 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(floods), sharey=True, squeeze=False)[0]
    for axis, phase in zip(axes, floods, strict=True):
        axis.set_title(phase.label)
        axis.set_xlabel("sent after (s)")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.grid(visible=True, which="major", alpha=0.3)
        for tier in phase.tiers:
            _scatter(axis, phase, tier)
    axes[0].set_ylabel("time to first token (s)")
    legend: dict[str, Artist] = {}
    for axis in axes:
        handles, names = axis.get_legend_handles_labels()
        legend.update(zip(names, handles, strict=True))
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=len(legend))
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def _scatter(axis: "Axes", phase: PhaseReport, tier: str) -> None:
    """Draw a tier's points; an arrow up is a request given up, which would have taken longer."""
    colour = _COLOURS.get(tier, _OTHER_COLOUR)
    for answered, marker, label in ((True, "o", tier), (False, "^", f"{tier}, given up")):
        points = [p for p in phase.points if p.tier == tier and p.answered == answered]
        if points or answered:
            axis.scatter(
                [point.sent_s for point in points],
                [point.ttft_s for point in points],
                s=18,
                color=colour,
                marker=marker,
                alpha=0.8,
                label=label,
            )
