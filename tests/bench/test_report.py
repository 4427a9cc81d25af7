"""Do table, JSON, plot and page hold the figures that were measured?"""

from base64 import b64decode
from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from headway.bench.isolation import BULK_ALONE, FLOOD, IsolationReport
from headway.bench.load import Load
from headway.bench.plot import draw_png, write_html, write_png
from headway.bench.report import COLUMNS, rows, sentences, table, to_json
from headway.bench.verdict import judge
from tests.bench.fake_report import phase, report, summary

PNG = b"\x89PNG\r\n\x1a\n"


def test_ratios_by_hand() -> None:
    verdict = judge(report(), "ours", "fcfs")
    assert verdict.ttft_p99_of_baseline == pytest.approx(0.05)
    assert verdict.ttft_p99_of_unloaded == pytest.approx(1.25)
    assert verdict.bulk_share == pytest.approx(0.9)
    assert [line.partition("is ")[2].partition(" ")[0] for line in sentences(verdict)[:2]] == [
        "0.050",
        "1.25",
    ]
    assert "90% of its tokens/s alone" in sentences(verdict)[2]


def test_what_was_not_measured_has_no_ratio() -> None:
    verdict = judge(report(), "fcfs", None)
    assert verdict.ttft_p99_of_baseline is None
    assert verdict.ttft_p99_of_unloaded is None
    assert verdict.bulk_share is None
    assert sentences(verdict) == []
    nothing = IsolationReport(
        load=Load(),
        phases=(
            phase("a", FLOOD, bulk=summary(ttft_p99_s=1, tokens_per_s=5)),
            phase("a", BULK_ALONE, bulk=summary(ttft_p99_s=1, tokens_per_s=0)),
        ),
    )
    assert judge(nothing, "a", "b").bulk_share is None


def test_repeats_are_judged_by_their_medians() -> None:
    first = report()
    others = [
        replace(item, repeat=repeat, tiers={**item.tiers, "critical": critical})
        for item in first.phases
        if (item.label, item.phase) == ("ours", FLOOD)
        for repeat, critical in (
            (1, summary(ttft_p99_s=2.0, tokens_per_s=16)),
            (2, summary(ttft_p99_s=9.0, tokens_per_s=16)),
        )
    ]
    repeated = replace(first, phases=(*first.phases, *others))
    assert judge(repeated, "ours", "fcfs").ttft_p99_of_baseline == pytest.approx(0.1)
    assert len(rows(repeated)) == len(rows(first))


def test_rows_say_what_each_tier_saw_and_mark_lower_bounds() -> None:
    got = {row[:3]: row[3:] for row in rows(report())}
    assert list(got) == [
        ("fcfs", "flood", "critical"),
        ("fcfs", "flood", "bulk"),
        ("ours", "unloaded", "critical"),
        ("ours", "bulk-alone", "bulk"),
        ("ours", "flood", "critical"),
        ("ours", "flood", "bulk"),
    ]
    fcfs = ("50", "2", "10.00 s", ">=20.00 s", ">=20.00 s", "100 ms", "10")
    assert got["fcfs", "flood", "critical"] == fcfs
    assert got["ours", "unloaded", "critical"][2:5] == ("400 ms", "800 ms", "800 ms")


def test_the_table_prints_every_row() -> None:
    console = Console(file=StringIO(), width=80)
    console.print(table(report()))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    for row in rows(report()):
        assert all(cell in text for cell in row)


def test_json_round_trips() -> None:
    verdict = judge(report(), "ours", "fcfs")
    document = msgspec.json.decode(to_json(report(), [verdict]))
    assert document["verdicts"][0]["bulk_share"] == pytest.approx(0.9)
    assert document["load"]["bulk_callers"] == 48
    assert document["phases"][0]["tiers"]["critical"]["ttft_p99_s"] == 20.0
    again = msgspec.convert({k: v for k, v in document.items() if k != "verdicts"}, IsolationReport)
    assert again == report()


def test_plot_and_page_are_written_and_need_nothing_else(tmp_path: Path) -> None:
    write_png(report(), tmp_path / "plot.png")
    image = (tmp_path / "plot.png").read_bytes()
    assert image.startswith(PNG)
    write_html(report(), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    embedded = page.partition("data:image/png;base64,")[2].partition('"')[0]
    assert b64decode(embedded).startswith(PNG)
    assert "http" not in page.replace(embedded, "")
    assert page.count("<tr>") == 1 + len(rows(report()))
    assert page.count("<th>") == len(COLUMNS)
    assert "&gt;=20.00 s" in page


def test_a_plot_without_a_flood_is_refused() -> None:
    without = replace(report(), phases=report().phases[1:3])
    with pytest.raises(ValueError, match="no flood"):
        draw_png(without)
