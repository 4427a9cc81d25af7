"""Does the live picture show the state of each tier?"""

from io import StringIO

from rich.console import Console

from headway.bench.load import Load, Phase
from headway.bench.records import RequestRecord
from headway.cli.live import picture, tier_row
from headway.clock import ManualClock

RECORDS = [
    RequestRecord(tier="critical", sent_s=1.0),
    RequestRecord(tier="critical", sent_s=40.0, chunk_s=[41.0, 46.0]),
    RequestRecord(tier="critical", sent_s=40.0, chunk_s=[43.0, 47.0, 49.0], finished=True),
    RequestRecord(tier="critical", sent_s=0.0, chunk_s=[9.0], finished=True),
    RequestRecord(tier="critical", sent_s=2.0, error="503"),
    RequestRecord(tier="bulk", sent_s=3.0),
]


def test_a_row_counts_waits_and_rates_by_hand() -> None:
    # At 50 s: one waits since 1 s, one runs; of the first tokens since 20 s, 1 s and 3 s; three
    # pieces since 45 s.
    row = tier_row(RECORDS, "critical", 50.0)
    assert row == ("critical", "1", "1", "2.00 s", "2.98 s", "49.00 s", "1")
    assert tier_row(RECORDS, "bulk", 50.0) == ("bulk", "1", "0", "-", "-", "47.00 s", "0")
    assert tier_row([], "bulk", 0.0) == ("bulk", "0", "0", "-", "-", "-", "0")


def test_the_picture_shows_progress_and_both_tiers() -> None:
    for now, state in ((30.0, "30 of 60 s"), (61.0, "waiting for the last answers")):
        clock = ManualClock(now)
        phase = Phase(load=Load(duration_s=60), now=clock.now, records=RECORDS)
        console = Console(file=StringIO(), width=80)
        console.print(picture("headway", phase))
        assert isinstance(console.file, StringIO)
        shown = " ".join(console.file.getvalue().split())
        assert state in shown
        assert "critical" in shown
        assert "bulk" in shown
